"""Plans as data: a workload, a trigger and an action. The JSON text of a plan is its name everywhere."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_DIGEST: Final = re.compile(r"(\.|tfcluster-)resolver-[0-9a-f]+")
_EVENT: Final = re.compile(r"^(.+)\.[0-9a-f]{6,}$")


def stable(resource: str, name: str) -> str:
    """Return a name that is the same in every run, with digests and times masked."""
    if resource == "events":
        return _EVENT.sub(r"\1.*", name)
    return _DIGEST.sub(r"\1resolver-*", name)


@dataclass(frozen=True, slots=True)
class Write:
    """The n-th write of this kind to this object, before or after the API server has committed it."""

    verb: str
    resource: str
    name: str
    nth: int
    when: str = "before"


@dataclass(frozen=True, slots=True)
class Line:
    """The n-th line of this type about this object on the operator's watch of a resource."""

    line: str
    type: str
    name: str
    nth: int


@dataclass(frozen=True, slots=True)
class Step:
    """The start of a step of the workload, numbered from 0."""

    step: int


Trigger = Write | Line | Step


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a workload with one fault, or none if it does not have a trigger."""

    workload: str
    trigger: Trigger | None = None
    action: str = ""

    def __str__(self) -> str:
        told: dict[str, Any] = {"workload": self.workload}
        if self.trigger is not None:
            told["trigger"] = {name: getattr(self.trigger, name) for name in self.trigger.__slots__}
            told["action"] = self.action
        return json.dumps(told, separators=(",", ":"))

    @property
    def kind(self) -> str:
        """The group of the fault in the figures."""
        when = f" {self.trigger.when}" if isinstance(self.trigger, Write) and self.action == "crash" else ""
        where = {Write: "write", Line: "line", Step: "step"}.get(type(self.trigger), "clean")  # type: ignore[arg-type]  # None is clean
        return f"{where}: {self.action}{when}" if self.trigger else "clean"


def read(text: str) -> Plan:
    """Parse a plan; any other text is a ValueError."""
    told = json.loads(text)
    trigger = told.get("trigger")
    return Plan(told["workload"], None if trigger is None else _trigger(trigger), told.get("action", ""))


def _trigger(told: Mapping[str, Any]) -> Trigger:
    for kind, mark in ((Write, "verb"), (Line, "line"), (Step, "step")):
        if mark in told:
            return kind(**told)
    raise ValueError(f"no trigger: {told}")
