"""The chart as helm renders it: objects that tests can look into.

It decides how helm is called, apart from the user's own configuration of it; it needs no cluster.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CHART: Final = ROOT / "charts" / "tfcluster-operator"

Object = dict[str, Any]

#: The C library's where PyYAML has it: the definition of the kind alone takes the other one over a second.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Helm:
    """The real helm, with a home of its own.

    Args:
        program: the binary.
        home: a folder for what it keeps.
    """

    def __init__(self, program: Path, home: Path) -> None:
        self._program = program
        places = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        self._environment = {**inherited, **places}

    def run(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command; the caller judges the exit status.

        Args:
            arguments: the command line.
            values: what the user sets, as a values file.
        """
        given = [] if values is None else ["--values", "-"]
        return subprocess.run(
            [self._program, *arguments, *given],
            input=json.dumps(values or {}),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        release: str = "r",
        namespace: str = "home",
        tests: bool = False,
    ) -> list[Object]:
        """Give all objects of a release.

        Args:
            values: what the user sets.
            release: its name.
            namespace: where it is installed.
            tests: whether with what is there for the time of ``helm test`` alone.
        """
        without = () if tests else ("--skip-tests",)
        answer = self.run("template", release, CHART, "--namespace", namespace, *without, values=values or {})
        assert answer.returncode == 0, answer.stderr
        return [found for found in yaml.load_all(answer.stdout, _LOADER) if found]


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    """Give the objects of one kind."""
    return [found for found in objects if found["kind"] == kind]


def the_only(objects: Sequence[Object], kind: str) -> Object:
    """Give the one object of a kind."""
    found = of_kind(objects, kind)
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def look(objects: Sequence[Object], where: str) -> Any:
    """Look into the rendered objects.

    Args:
        objects: all of them.
        where: ``Kind`` or ``Kind.path.to.a[0].field``, for a kind of which there is at most one; or
            ``Kind:name.path``, for one of several.

    Returns:
        What is there; None where it, its object, or a part of the way to it is missing.
    """
    kind, *steps = re.findall(r"[^.\[\]]+", where)
    kind, _, name = kind.partition(":")
    found = [one for one in of_kind(objects, kind) if name in {"", one["metadata"]["name"]}]
    assert len(found) <= 1, f"{len(found)} objects of kind {kind}"
    here: Any = found[0] if found else None
    for step in steps:
        if here is None:
            return None
        here = _item(here, int(step)) if isinstance(here, list) else here.get(step)
    return here


def _item(items: Sequence[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def leaves(values: Mapping[str, Any], prefix: str = "", *, whole: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Flatten values: ``image.tag`` and what it is; an empty object is a leaf, and so is one of those named."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and path not in whole:
            yield from leaves(value, f"{path}.", whole=whole)
        else:
            yield path, value


def nest(path: str, value: Any) -> Object:
    """Build the values that set one leaf: ``nest("image.tag", 1)`` is ``{"image": {"tag": 1}}``."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value
