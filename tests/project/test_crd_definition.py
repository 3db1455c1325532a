"""The committed CustomResourceDefinition: it equals its sources, is small, and has descriptions."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "crds" / "tfcluster.yaml"
#: Kubernetes' part: from here down the schema is the API server's own.
POD = "spec.jobs.*.template.spec"
#: The API server allows no description here.
METADATA = "metadata"


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def schema(definition: dict[str, Any]) -> dict[str, Any]:
    (version,) = definition["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every schema under one, with its path: * for the values of a map, [] for the items of a list."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}".lstrip("."))
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from walk(schema[key], path + step)


def of_ours(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((path, part) for path, part in walk(schema) if not path.startswith(f"{POD}."))


def applied_size(definition: dict[str, Any]) -> int:
    """Return the size of a CRD in bytes as Go writes it, with its escapes."""
    text = json.dumps(definition, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return len(text.encode())


def generate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "crds" / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "crds", tmp_path / "crds")
    return tmp_path


def test_definition_is_up_to_date_and_small_enough_to_apply(definition: dict[str, Any]) -> None:
    checked = generate(ROOT, "--check")
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    assert applied_size(definition) < 240_000


def test_every_field_of_ours_has_a_description(schema: dict[str, Any]) -> None:
    silent = [
        path for path, part in of_ours(schema) if path != METADATA and not part.get("description", "").endswith(".")
    ]
    assert silent == []


def test_every_printer_column_but_age_has_a_description_and_conditions_merge_by_type(
    definition: dict[str, Any],
) -> None:
    (version,) = definition["spec"]["versions"]
    columns = {column["name"]: column.get("description", "") for column in version["additionalPrinterColumns"]}
    assert list(columns) == ["Tasks", "Ready", "Reason", "Restarts", "Age", "Accelerators", "Queue", "Waiting", "Epoch"]
    assert [name for name, description in columns.items() if not description] == ["Age"]
    conditions = dict(walk(version["schema"]["openAPIV3Schema"]))["status.conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_no_field_of_ours_leads_to_another_namespace(schema: dict[str, Any]) -> None:
    """All objects of a cluster are in its own namespace, so no field can name another one."""
    named = [path for path, _ in of_ours(schema) if path.rpartition(".")[2].lower().endswith("namespace")]
    assert named == []


def test_every_list_map_and_text_of_the_spec_is_bounded(schema: dict[str, Any]) -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number or text": "maxLength"}
    unbounded = [
        path
        for path, part in of_ours(schema["properties"]["spec"] | {"type": "object"})
        if not path.startswith(("jobs.*.template",))
        and (
            ((kind := part.get("type", "number or text")) in bounds and bounds[kind] not in part and "enum" not in part)
            or ("additionalProperties" in part and "maxProperties" not in part)
        )
    ]
    assert unbounded == []


def test_search_for_circles_is_as_long_as_the_longest_chain(schema: dict[str, Any]) -> None:
    """The rule on startAfter has a round for each possible job: with fewer it would reject long chains."""
    jobs = dict(walk(schema))["spec.jobs"]
    (circle,) = (rule["rule"] for rule in jobs["x-kubernetes-validations"] if "circle" in rule["message"])
    assert [f"map(r{number}," in circle for number in range(1, jobs["maxProperties"] + 2)] == [
        *([True] * jobs["maxProperties"]),
        False,
    ]


def test_nothing_unknown_is_preserved_but_in_what_is_internal(schema: dict[str, Any]) -> None:
    """The schema is strict for users' fields; operators of other versions can store more internal ones."""
    loose = [path for path, part in walk(schema) if part.get("x-kubernetes-preserve-unknown-fields")]
    assert "can change at any time" in schema["properties"]["status"]["properties"]["internal"]["description"]
    assert loose == ["status.internal"]


def test_template_schema_is_without_defaults(schema: dict[str, Any]) -> None:
    assert [path for path, part in walk(schema) if "default" in part] == [
        "spec.rpcLayer",
        "spec.port",
        "spec.suspend",
        "spec.successPolicy.tasks",
        "spec.cleanPodPolicy",
        "spec.failedPodsHistoryLimit",
        "spec.updateStrategy",
        "spec.updateStrategy.type",
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        "spec.resolver",
        "spec.resolver.tfConfig",
        "spec.scheduling.colocate.whenUnsatisfiable",
        "spec.scheduling.spread[].maxSkew",
        "spec.scheduling.spread[].whenUnsatisfiable",
        "spec.isolation",
        "spec.isolation.mode",
        "spec.isolation.portScope",
        "spec.jobs.*.replicas",
        "spec.jobs.*.restartPolicy",
        "spec.jobs.*.restartScope",
        "spec.jobs.*.drainTimeoutSeconds",
        "status",
    ]


def test_kubernetes_fields_have_kubernetes_descriptions(schema: dict[str, Any]) -> None:
    fields = [path for path, _ in walk(schema) if path.startswith(f"{POD}.") and not path.endswith(("[]", ".*"))]
    described = dict(walk(schema))
    silent = [path for path in fields if not described[path].get("description", "").endswith((".", "!", "?"))]
    assert len(fields) > 800
    assert silent == []


def test_pod_template_is_kubernetes_own(schema: dict[str, Any]) -> None:
    """The template has every field of the vendored PodSpec, except ephemeral containers."""
    kubernetes = json.loads((ROOT / "crds" / "sources" / "kubernetes.json").read_text(encoding="utf-8"))
    pod = dict(walk(schema))[POD]
    expected = kubernetes["io.k8s.api.core.v1.PodSpec"]["properties"].keys() - {"ephemeralContainers"}
    assert pod["properties"].keys() == expected
