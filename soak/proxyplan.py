"""What a plan says of the proxy: which one, its binary, and raw configuration of one's own."""

from __future__ import annotations

from pydantic import Field, model_validator

from soak.commandplan import CommandPlan
from soak.plantypes import Frozen

COMMAND = "command"
"""The kind of a proxy that the plan alone knows."""


class ProxyPlan(Frozen):
    """Which proxy, and how it is started."""

    kind: str = Field(
        "nginx",
        description="Name of an adapter ('soak start --help' lists them); or command: a proxy that only the plan knows.",
    )
    binary: str | None = Field(
        None, description="Path of the proxy's binary; default: the one from its package or on PATH."
    )
    workers: int = Field(
        2, ge=1, le=64, description="Worker processes or threads of the proxy, where it has them."
    )
    extra: str = Field("", description="Raw configuration added to the server block.")
    command: CommandPlan | None = Field(None, description="With kind 'command': everything soak knows of it.")

    @model_validator(mode="after")
    def _check(self) -> ProxyPlan:
        if self.command is not None and self.kind != COMMAND:
            raise ValueError(
                f"command describes a proxy of kind 'command', and kind is {self.kind!r}; remove one of them"
            )
        if self.kind == COMMAND and self.command is None:
            raise ValueError(
                "kind 'command' is a proxy that only the plan knows, and its key 'command' is missing; "
                "'soak init --preset command' writes a plan to start from"
            )
        if self.kind == COMMAND and self.binary is None:
            raise ValueError(
                "kind 'command' needs the key 'binary': the path of the proxy, or its name on PATH"
            )
        return self

    @property
    def label(self) -> str:
        """What people call it: the adapter's name, or the one that the plan gives."""
        return self.kind if self.command is None or not self.command.name else self.command.name
