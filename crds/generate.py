"""Generate the CustomResourceDefinition: our part by hand, PodSpec from the schema of Kubernetes.

Usage:
    python crds/generate.py                     write crds/tfcluster.yaml; the chart and the client link to it
    python crds/generate.py --check             fail with exit status 1 if it is not up to date
    python crds/generate.py --refresh KUBECONFIG
                                                first fetch Kubernetes' schemas from that cluster's API server

Our part is sources/definition.yaml, with sources/filter_rules.py for the rules on device filters and start_rules.py for
the rules on the start order of jobs; they define a TFCluster.  This script makes Kubernetes' schemas structural, as a
CustomResourceDefinition requires, and decides how many of Kubernetes' descriptions fit into it.
"""

import argparse
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from sources import filter_rules, start_rules

FOLDER: Final = Path(__file__).resolve().parent
DEFINITION: Final = FOLDER / "sources" / "definition.yaml"
KUBERNETES: Final = FOLDER / "sources" / "kubernetes.json"
RESULT: Final = FOLDER / "tfcluster.yaml"
HEADER: Final = "# Made by crds/generate.py from crds/sources: edit those, then run `make crds`.\n"

#: The schema of Kubernetes that we use.
ROOT: Final = "io.k8s.api.core.v1.PodSpec"
#: The path of an API server that publishes it.
OPENAPI_PATH: Final = "/openapi/v3/api/v1"
#: Fields that a structural schema must not have, or that have no meaning in a CustomResourceDefinition.
DROPPED: Final = frozenset(
    {
        "default",  # the stored template stays what the user wrote
        "x-kubernetes-group-version-kind",
        "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy",
        "x-kubernetes-unions",
    }
)
QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
#: The grammar in Quantity's documentation, so that "4GB" is rejected here and not when the pod is created.
QUANTITY_PATTERN: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"

#: The maximum size of the CRD, in bytes of the JSON that ``kubectl apply`` keeps in an annotation.  The API server
#: accepts 262,144 for all annotations together.
APPLIED_LIMIT: Final = 240_000
#: The end of a sentence, but not the stop of "e.g.", "i.e." or "etc.".
SENTENCE_END: Final = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)[.!?](?=\s|$)")

#: The functions that definition.yaml can call with `$rules`.
RULES: Final[Mapping[str, Callable[[], list[dict[str, str]]]]] = {
    "of_one_list": filter_rules.of_one_list,
    "of_the_cluster": filter_rules.of_the_cluster,
    "of_the_start": start_rules.of_the_jobs,
}

Schema = dict[str, Any]


class Borrowed(str):
    """A description of Kubernetes; unlike ours, it is left out if the CRD would become too large."""

    __slots__ = ()


def generate() -> str:
    """Generate the CustomResourceDefinition from its sources.

    Returns:
        Its YAML.
    """
    kubernetes = json.loads(KUBERNETES.read_text(encoding="utf-8"))
    definition = inline(yaml.safe_load(DEFINITION.read_text(encoding="utf-8")), kubernetes)
    (version,) = definition["spec"]["versions"]
    borrowed = remove_borrowed(version["schema"]["openAPIV3Schema"])
    restore(borrowed, APPLIED_LIMIT - applied_size(definition))
    return HEADER + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def inline(node: Any, kubernetes: Mapping[str, Schema]) -> Any:
    """Replace each ``$ref`` in our part with the schema that it names.

    Args:
        node: a value in our part.
        kubernetes: Kubernetes' schemas by name.

    Returns:
        The value without references and nulls; the keys beside a reference are merged over the named schema.
    """
    if isinstance(node, list):
        return [made for entry in node for made in _rules(entry) or [inline(entry, kubernetes)]]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return merge(structural(kubernetes[node["$ref"]], kubernetes), beside)
    return {key: inline(value, kubernetes) for key, value in node.items() if value is not None}


def remove_borrowed(schema: Schema) -> list[tuple[Schema, str]]:
    """Remove Kubernetes' descriptions from a schema.

    Args:
        schema: a structural schema; it is changed.

    Returns:
        The schemas that had one, each with its text, those nearest to the root first.
    """
    found: list[tuple[Schema, str]] = []
    waiting = deque([schema])
    while waiting:
        part = waiting.popleft()
        if isinstance(part.get("description"), Borrowed):
            found.append((part, str(part.pop("description"))))
        waiting.extend(part.get("properties", {}).values())
        waiting.extend(part[key] for key in ("items", "additionalProperties") if isinstance(part.get(key), dict))
    return found


def restore(descriptions: list[tuple[Schema, str]], room: int) -> None:
    """Restore descriptions, in their order, until the next one does not fit.

    Args:
        descriptions: the schemas, each with its text.
        room: how many bytes the CRD can grow by, as :func:`applied_size` counts.
    """
    for part, text in descriptions:
        room -= len(',"description":') + applied_size(text)
        if room < 0:
            return
        part["description"] = text


def applied_size(value: Any) -> int:
    """Count the bytes that ``kubectl apply`` keeps for a value: compact JSON as Go writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    # Go escapes these three in six bytes each.
    return len(text.encode()) + 5 * sum(map(text.count, "<>&"))


def merge(under: Any, over: Any) -> Any:
    """Merge as RFC 7386 does: maps key by key, null removes, anything else replaces."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    merged = {**under, **{key: merge(under.get(key), value) for key, value in over.items()}}
    return {key: value for key, value in merged.items() if value is not None}


def structural(schema: Schema, kubernetes: Mapping[str, Schema]) -> Schema:
    """Make one of Kubernetes' schemas structural, according to "Specifying a structural schema".

    Args:
        schema: the schema, with references.
        kubernetes: all of them by name.

    Returns:
        The schema without references and defaults; a choice of integer or string becomes x-kubernetes-int-or-string.
        Its descriptions are Borrowed.
    """
    description = {"description": Borrowed(schema["description"])} if "description" in schema else {}
    if "allOf" in schema:  # one reference, wrapped so that it can carry a description
        (only,) = schema["allOf"]
        return {**structural(only, kubernetes), **description}
    if "$ref" in schema:
        name = _referenced(schema)
        pattern = {"pattern": QUANTITY_PATTERN} if name == QUANTITY else {}
        return {**structural(kubernetes[name], kubernetes), **pattern}
    if "oneOf" in schema:
        return {"x-kubernetes-int-or-string": True, **description}
    made = {key: value for key, value in schema.items() if key not in DROPPED} | description
    if "properties" in made:
        made["properties"] = {name: structural(part, kubernetes) for name, part in made["properties"].items()}
    for part in made.keys() & {"items", "additionalProperties"}:
        made[part] = structural(made[part], kubernetes)
    keys = set(made.get("x-kubernetes-list-map-keys", ()))
    if not keys <= set(made.get("items", {}).get("required", ())):
        # An optional key would need a default, which would then be stored in the user's template.
        del made["x-kubernetes-list-map-keys"]
        made["x-kubernetes-list-type"] = "atomic"
    return made


def fetch(kubeconfig: str) -> dict[str, Schema]:
    """Read the schemas that ROOT needs from an API server.

    Args:
        kubeconfig: path of its kubeconfig.

    Returns:
        The schemas by name, with the first sentence of each description.
    """
    from kubernetes import client, config  # noqa: PLC0415 - only a refresh needs the client

    configuration = client.Configuration()
    config.load_kube_config(kubeconfig, client_configuration=configuration)
    api = client.ApiClient(configuration)
    request = api.param_serialize("GET", OPENAPI_PATH, header_params={"Accept": "application/json"})
    answer = api.call_api(*request)
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{OPENAPI_PATH}: the API server answered {answer.status}: {body.decode(errors='replace')}")
    schemas = json.loads(body)["components"]["schemas"]
    return {name: brief(schemas[name]) for name in sorted(reachable(ROOT, schemas))}


def reachable(root: str, schemas: Mapping[str, Schema]) -> set[str]:
    """Return the names of the schemas that one needs, including itself."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += map(_referenced, _references(schemas[name]))
    return found


def brief(schema: Schema) -> Schema:
    """Shorten the descriptions of a schema and of all its parts; a property with the name ``description`` stays."""
    made = {key: first_sentence(value) if key == "description" else value for key, value in schema.items()}
    if "properties" in made:
        made["properties"] = {name: brief(part) for name, part in made["properties"].items()}
    for part in made.keys() & {"items", "additionalProperties"}:
        made[part] = brief(made[part])
    return made


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, with a stop at its end."""
    line = " ".join(text.strip().partition("\n\n")[0].split())
    # Some begin with a sentence of one word, "Required.", which is not enough.
    ends = (line[: end.end()] for end in SENTENCE_END.finditer(line))
    return next((sentence for sentence in ends if " " in sentence), f"{line.rstrip('.:;,')}.")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the arguments, or None for those of the process.

    Returns:
        The exit status: 1 if the CRD is not up to date.
    """
    parser = argparse.ArgumentParser(prog="crds/generate.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the CRD is not up to date")
    parser.add_argument("--refresh", metavar="KUBECONFIG", help="fetch Kubernetes' schemas from that cluster first")
    chosen = parser.parse_args(arguments)
    if chosen.refresh:
        KUBERNETES.write_text(json.dumps(fetch(chosen.refresh), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    text = generate()
    if RESULT.read_text(encoding="utf-8") == text:
        return 0
    place = RESULT.relative_to(FOLDER.parent)
    if chosen.check:
        print(f"{place} is not what its sources say: run `make crds`")  # noqa: T201 - the answer of a command
        return 1
    RESULT.write_text(text, encoding="utf-8")
    print(f"wrote {place}")  # noqa: T201 - the answer of a command
    return 0


def _rules(entry: Any) -> list[dict[str, str]]:
    name = entry.get("$rules") if isinstance(entry, dict) else None
    return RULES[name]() if name else []


def _references(schema: Any) -> Iterator[Schema]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _referenced(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


class _Dumper(yaml.SafeDumper):
    """Writes the YAML without aliases, so that readers need not look them up."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


if __name__ == "__main__":
    sys.exit(main())
