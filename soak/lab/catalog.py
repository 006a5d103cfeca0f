"""All labs by name: each is made from the plan alone. Adding one means a file beside this one, and a line here."""

from __future__ import annotations

from soak.errors import PlanError, nearest
from soak.lab.base import Lab, OnEvent
from soak.plan import Plan
from soak.rundir import RunDir

LABS = ("local", "docker", "attach")
"""Names of the labs, as in ``lab.kind`` of a plan."""


def lab_of(run: RunDir, plan: Plan, *, on_event: OnEvent) -> Lab:
    """Make the lab that the plan wants. Nothing is started yet. Raises ``LabError`` or ``PlanError``."""
    routes = max(c.hosts for c in plan.traffic.classes)
    if plan.lab.kind == "local":
        from soak.lab.local import LocalLab  # noqa: PLC0415 - a lab's libraries are loaded only when it is used

        return LocalLab(run, plan, on_event=on_event, routes=routes)
    if plan.lab.kind == "docker":
        from soak.lab.docker import DockerLab  # noqa: PLC0415 - same

        return DockerLab(run, plan, on_event=on_event, routes=routes)
    if plan.lab.kind == "attach":
        from soak.lab.attach import AttachLab  # noqa: PLC0415 - same

        return AttachLab(run, plan, on_event=on_event, routes=routes)
    raise PlanError(f"there is no lab {plan.lab.kind!r}{nearest(plan.lab.kind, LABS)}")
