"""Before hour zero: whether the engine of a docker lab answers, is young enough, and has the images. Makes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soak.lab.docker import facts_of, images_of, require_reads
from soak.lab.engine import Engine
from soak.lab.enginewords import ImageMissingError
from soak.labplan import DockerLabPlan
from soak.plan import Plan
from soak.proxies.catalog import adapter_of


@dataclass(frozen=True, slots=True)
class EngineLook:
    """What a look at the engine showed."""

    engine: str
    """Its version and where it is."""
    images: Sequence[str]
    """Images that are there."""
    missing: Sequence[str]
    """A sentence for each that is not, with the command that gets it."""


async def look_at_engine(plan: Plan) -> EngineLook:
    """Look now. Raises ``LabError`` for an engine that cannot be used, and for a proxy without an image."""
    where = plan.lab.docker or DockerLabPlan()
    facts = facts_of(adapter_of(plan.proxy), where)
    require_reads(facts)
    engine = await Engine.connect(where.host)
    there: list[str] = []
    missing: list[str] = []
    try:
        for image in images_of(facts, where):
            try:
                await engine.require_image(image)
                there.append(image)
            except ImageMissingError as error:
                missing.append(str(error))
        return EngineLook(f"Docker {engine.version} at {engine.host}", there, missing)
    finally:
        engine.close()
