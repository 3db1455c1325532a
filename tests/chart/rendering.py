"""The chart as objects, as helm renders it without the user's own configuration and without a cluster."""

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
    """A YAML loader that rejects duplicate keys; it uses the C library: in pure Python the CRD takes over a second."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"a key is there twice: {keys}"
        return super().construct_mapping(node, deep=deep)


def read_yaml(text: str) -> list[Object]:
    return [found for found in yaml.load_all(text, _Loader) if found]


class Helm:
    def __init__(self, program: Path, home: Path) -> None:
        self._program = program
        places = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        self._environment = {**inherited, **places}
        self._rendered: dict[str, list[Object]] = {}

    def run(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command with the user's values; the caller checks the exit status."""
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
    ) -> list[Object]:
        """Return all objects of a release, cached: do not change them; the CRD only with ``crds`` in the values."""
        given = {"crds": {"enabled": False}, **(values or {})}
        command = ("template", release, str(CHART), "--namespace", namespace, *options)
        key = json.dumps([command, given])
        if key not in self._rendered:
            answer = self.run(*command, values=given)
            assert answer.returncode == 0, answer.stderr
            self._rendered[key] = read_yaml(answer.stdout)
        return self._rendered[key]

    def refusal(self, values: Mapping[str, Any]) -> dict[str, str]:
        answer = self.run("template", "r", CHART, values=values)
        assert answer.returncode != 0
        assert answer.stdout == ""
        assert "don't meet the specifications of the schema" in answer.stderr
        told: dict[str, str] = {}
        for place, words in re.findall(r"^ *- at '(.*?)': (.+)$", answer.stderr, re.MULTILINE):
            if words != "validation failed":  # it only says that its parts have errors
                told[place] = f"{told.get(place, '')} {words}".strip()
        return told


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def the_only(objects: Sequence[Object], kind: str) -> Object:
    found = of_kind(objects, kind)
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def look(objects: Sequence[Object], where: str) -> Any:
    """Return the value at ``Kind.path.to.a[0].field``, or ``Kind:name.path`` for one of several; None if missing."""
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
    """Flatten values: ``image.tag`` and its value; empty objects and the named paths are leaves."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and path not in whole:
            yield from leaves(value, f"{path}.", whole=whole)
        else:
            yield path, value


def nest(path: str, value: Any) -> Object:
    """Build the values that set one leaf: ``nest("image.tag", 1)`` is ``{"image": {"tag": 1}}``; slashes work too."""
    steps = path[1:].split("/") if path.startswith("/") else path.split(".")
    for step in reversed(steps):
        value = [value] if step.isdigit() else {step.replace("~1", "/"): value}
    return value


def merge(*given: Mapping[str, Any]) -> Object:
    merged: Object = {}
    for values in given:
        for name, value in values.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
            merged[name] = merge(merged[name], value) if both else value
    return merged
