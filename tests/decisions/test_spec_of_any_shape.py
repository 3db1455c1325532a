"""Any value in any field, as an API server with another CRD might store it: it is reported, or planned for."""

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from decisions.in_memory import InMemoryWorld, make_body

from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.plan.actions import Create

DEFINITION = Path(__file__).resolve().parents[2] / "crds" / "tfcluster.yaml"
#: The key for a map of the schema, by the name of its field.
KEYS = {"jobs": "worker", "taskDeviceFilters": "0"}
ODD: tuple[Any, ...] = ("", "٣", -1, 1.5, 10**30, True, [], {}, [None], {"x": 5}, None)


def paths(schema: dict[str, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every field of a schema, with one key for each map and one index for each list."""
    yield path
    for name, part in schema.get("properties", {}).items():
        yield from paths(part, (*path, name))
    if "additionalProperties" in schema:
        yield from paths(schema["additionalProperties"], (*path, KEYS.get(path[-1], "a")))
    if "items" in schema:
        yield from paths(schema["items"], (*path, 0))


def every_path() -> list[tuple[Any, ...]]:
    (version,) = yaml.load(DEFINITION.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]["versions"]
    found = paths(version["schema"]["openAPIV3Schema"]["properties"]["spec"], ("spec",))
    # The fields of a template are Kubernetes' own, and the CRD has their types.
    return [path for path in found if "template" not in path[:-1]]


def body_with(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(make_body({"worker": 1}))
    found: Any = body
    for part, after in itertools.pairwise(path):
        missing: Any = [] if after == 0 else {}
        if part == 0:
            found[:] = found or [missing]
            found = found[0]
        else:
            found = found.setdefault(part, missing)
    if path[-1] == 0:
        found[:] = [value]
    else:
        found[path[-1]] = value
    return body


def fault(body: dict[str, Any]) -> str | None:
    """Parse a TFCluster, and plan and build its objects; return the problems of its spec, or None."""
    try:
        cluster = parse(body)
    except InvalidSpecError as error:
        return str(error)
    for action in InMemoryWorld().plan(cluster).actions:
        if isinstance(action, Create) and action.build is not None:
            action.build()
    return None


def test_every_field_with_any_value_is_reported_or_planned_for():
    """Nothing but InvalidSpecError is raised, and it has the path down to a field of a job or of a part of the spec."""
    reported, wrong = 0, []
    for path in every_path():
        for value in ODD:
            body = body_with(path, value)
            try:
                told = fault(body)
            except Exception as error:  # noqa: BLE001 - any other error is what this test looks for
                wrong.append(f"{path} = {value!r}: {error!r}")
                continue
            if told is not None:
                reported += 1
                depth = 4 if path[1:2] == ("jobs",) else 3
                if ".".join(map(str, path[:depth])) not in told.replace("[0]", ".0"):
                    wrong.append(f"{path} = {value!r} is reported as {told}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])
    assert reported > 500
