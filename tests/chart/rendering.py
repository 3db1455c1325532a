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


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which a key may be there only once; by the C library: the definition alone takes PyYAML over a second."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"a key is there twice: {keys}"
        return super().construct_mapping(node, deep=deep)


def read_yaml(text: str) -> list[Object]:
    return [found for found in yaml.load_all(text, _Loader) if found]


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
        self._rendered: dict[str, list[Object]] = {}

    def run(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command with these values of the user; the caller judges the exit status."""
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
        *options: str,
        release: str = "r",
        namespace: str = "home",
        tests: bool = False,
    ) -> list[Object]:
        """Return all objects of a release; nobody may change them, as the same values are rendered only once.

        Args:
            values: what the user sets. Where it says nothing of ``crds``, the definition of the kind, whose rendering
                takes longer than all the rest, is left out: ``{"crds": {}}`` has it.
            options: of ``helm template``.
            release: its name.
            namespace: where it is installed.
            tests: whether with what is there for the time of ``helm test`` alone.
        """
        given = {"crds": {"enabled": False}, **(values or {})}
        without = () if tests else ("--skip-tests",)
        command = ("template", release, str(CHART), "--namespace", namespace, *without, *options)
        key = json.dumps([command, given])
        if key not in self._rendered:
            answer = self.run(*command, values=given)
            assert answer.returncode == 0, answer.stderr
            self._rendered[key] = read_yaml(answer.stdout)
        return self._rendered[key]

    def refusal(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Have values rejected by the schema, before anything is made; return what is said of each place."""
        answer = self.run("template", "r", CHART, values=values)
        assert answer.returncode != 0
        assert answer.stdout == ""
        assert "don't meet the specifications of the schema" in answer.stderr
        told: dict[str, str] = {}
        for place, words in re.findall(r"^ *- at '(.*?)': (.+)$", answer.stderr, re.MULTILINE):
            if words != "validation failed":  # which only says that more is said of its parts
                told[place] = f"{told.get(place, '')} {words}".strip()
        return told


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def the_only(objects: Sequence[Object], kind: str) -> Object:
    found = of_kind(objects, kind)
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def look(objects: Sequence[Object], where: str) -> Any:
    """Give what is at a place of the objects; None where it, its object, or a part of the way to it is missing.

    Args:
        objects: all of them.
        where: ``Kind`` or ``Kind.path.to.a[0].field``, for a kind of which there is at most one; or
            ``Kind:name.path``, for one of several.
    """
    kind, *steps = re.findall(r"[^.\[\]]+", where)
    kind, _, name = kind.partition(":")
    found = [one for one in of_kind(objects, kind) if name in {"", one["metadata"]["name"]}]
    assert len(found) <= 1, f"{len(found)} objects of kind {kind}"
    here: Any = found[0] if found else None
    for step in steps:
        if here is None:
            return None
        here = next(iter(here[int(step) :]), None) if isinstance(here, list) else here.get(step)
    return here


def selects(selector: Object, labels: Object) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def leaves(values: Mapping[str, Any], prefix: str = "", *, whole: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Flatten values: ``image.tag`` and what it is; an empty object is a leaf, and so is one of those named."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and path not in whole:
            yield from leaves(value, f"{path}.", whole=whole)
        else:
            yield path, value


def nest(path: str, value: Any) -> Object:
    """Build the values that set one leaf: ``nest("image.tag", 1)`` is ``{"image": {"tag": 1}}``.

    Args:
        path: the leaf, ``watchNamespaces.0`` for an item; or with slashes, as helm tells where a wrong value is.
        value: what it is set to.
    """
    steps = path[1:].split("/") if path.startswith("/") else path.split(".")
    for step in reversed(steps):
        value = [value] if step.isdigit() else {step.replace("~1", "/"): value}
    return value


def merge(*given: Mapping[str, Any]) -> Object:
    """Return values as one; the later ones win."""
    merged: Object = {}
    for values in given:
        for name, value in values.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
            merged[name] = merge(merged[name], value) if both else value
    return merged
