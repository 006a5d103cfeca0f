"""What a plan says of the lab: where the system under test runs, and what it is made of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from soak.plantypes import Duration, Frozen


class LabPlan(Frozen):
    """Where the system under test runs."""

    kind: Literal["local"] = "local"
    backends: int = Field(3, ge=1, le=64, description="How many origins stand behind the proxy: b1, b2, ...")
    start_timeout: Duration = Field(15.0, gt=0, description="How long the lab may take to come up.")
