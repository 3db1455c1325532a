"""Validate the manifest of a TFCluster as the API server and the operator do, and report every problem.

The schema of the CRD is judged by jsonschema with Kubernetes' extensions; unknown fields are problems, as they are to
kubectl (``fieldValidation=Strict``).
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import yaml
from jsonschema import Draft202012Validator, ValidationError, validators

from tfcluster.errors import ManifestError
from tfcluster.manifest.files import Manifest
from tfcluster.manifest.rules import Schema, Where, broken
from tfcluster.manifest.shaping import nodes, shape
from tfcluster.tasks import name_of
from tfcluster.terminal import brief, spelled
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster


@cache
def definition() -> Mapping[str, Any]:
    text = resources.files("tfcluster").joinpath("definition.yaml").read_text(encoding="utf-8")
    body: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    return body


@cache
def schema() -> Schema:
    version = next(one for one in definition()["spec"]["versions"] if one["storage"])
    found: Schema = version["schema"]["openAPIV3Schema"]
    return found


_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
#: The messages of some rules begin with the path of the field.
_OWN_PATH: Final = re.compile(r"((?:spec|metadata)\.[\w.\[\]]+(?:, spec\.[\w.]+)*)(?:: | (?=name each other))")
NO_FIELD: Final = "this field does not exist"
_QUANTITY: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"


class Problem(NamedTuple):
    """A problem of a manifest: the place, and what to do."""

    where: Where
    words: str

    def __str__(self) -> str:
        path = spelled(self.where) or "the object"
        # The messages of some rules begin with a path that the schema does not use, such as spec.jobs."1".
        return self.words if self.words.startswith(f"{path}.") else f"{path}: {self.words}"


def read_path(text: str) -> Where:
    return tuple(int(index) if index else key for index, key in _STEP.findall(text))


def problems(body: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Problem]:
    found = misfits(body)
    shaped = _shaped(body)
    if isinstance(about := shaped.get("metadata"), dict) and (name := name_of(about)):
        about["name"] = name  # a generated name has to follow the same rules
    malformed = [one.where for one in found]
    for where, words in broken(schema(), shaped, old, malformed):
        own = _OWN_PATH.match(words)
        found.append(Problem(read_path(own[1].partition(",")[0]), words[own.end() :]) if own else Problem(where, words))
    return list(dict.fromkeys(found))


def _shaped(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its status, as the API server would store it."""
    return shape(schema(), {key: value for key, value in body.items() if key != "status"})


def misfits(body: Mapping[str, Any]) -> list[Problem]:
    """Validate only against the schema, because the API server can already have values for missing fields."""
    kept = {key: value for key, value in body.items() if key != "status"}
    errors = _validator().iter_errors(without_nulls(schema(), kept))
    found = [*_of_the_object(body), *(Problem(tuple(error.absolute_path), _words_of(error)) for error in errors)]
    told = {one.where for one in found}
    return [*found, *(one for one in _of_numbers(kept) if one.where not in told)]


# --- what every object has


_METADATA: Final = (
    *("annotations", "finalizers", "generateName", "labels", "name", "namespace", "ownerReferences"),
    # The output of `kubectl get -o yaml` can be applied again.
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"),
    *("resourceVersion", "selfLink", "uid"),
)
_NAME: Final = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _of_the_object(body: Mapping[str, Any]) -> Iterator[Problem]:
    if body.get("apiVersion") != naming.API_VERSION:
        yield Problem(("apiVersion",), f"write {naming.API_VERSION}")
    about = body.get("metadata")
    if about is not None and not isinstance(about, Mapping):
        yield Problem(("metadata",), _wrong_type("object", about))
        return
    about = about or {}
    name = about.get("name")
    if name is not None and not isinstance(name, str):
        yield Problem(("metadata", "name"), _wrong_type("string", name))
    elif not name_of(about):
        yield Problem(("metadata", "name"), "give the cluster a name")
    namespace = about.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)):
        yield Problem(("metadata", "namespace"), f"{brief(namespace)} cannot name a namespace")
    for key in about:
        if key not in _METADATA:
            yield Problem(("metadata", key), _unknown(key, _METADATA))
    for group in ("labels", "annotations"):
        yield from _of_texts(("metadata", group), about.get(group))


def _of_texts(where: Where, group: Any) -> Iterator[Problem]:
    if group is not None and not isinstance(group, Mapping):
        yield Problem(where, _wrong_type("object", group))
        return
    for key, value in (group or {}).items():
        prefix, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or len(name) > 63 or (slash and not _PREFIX.fullmatch(prefix)):
            yield Problem((*where, key), "this is not a key: write a name, or a domain, a slash and a name")
        if not isinstance(value, str):
            yield Problem((*where, key), _wrong_type("string", value))
        elif where[-1] == "labels" and value and not (_NAME.fullmatch(value) and len(value) <= 63):
            yield Problem((*where, key), f"{brief(value)} is not a label: use up to 63 letters, digits and -_.")


def _of_numbers(body: Mapping[str, Any]) -> Iterator[Problem]:
    """Return the numbers that every API server rejects, independent of the schema."""
    for where, value in nodes(body):
        if isinstance(value, int | float) and not -_INT64 <= value < _INT64:
            yield Problem(where, f"{_out_of_range(value, _INT64)}, or put it in quotes")


# --- the schema


@cache
def _validator() -> Any:
    extend: Any = validators.extend
    judged = {
        "required": _required,
        "properties": _properties,
        "format": _format,
        "x-kubernetes-int-or-string": _int_or_string,
        "x-kubernetes-list-type": _list_type,
    }
    return extend(Draft202012Validator, judged)(schema())


_Errors = Iterator[ValidationError]


def _required(validator: Any, names: Sequence[str], instance: Any, of: Schema) -> _Errors:
    del of
    for name in names if validator.is_type(instance, "object") else ():
        if name not in instance:
            yield _error_at(name, "this is missing")


def _error_at(step: str | int, words: str) -> ValidationError:
    error = ValidationError(words)
    error.path.append(step)
    return error


def _int_or_string(validator: Any, either: bool, instance: Any, of: Schema) -> _Errors:
    del of
    if either and not (validator.is_type(instance, "integer") or validator.is_type(instance, "string")):
        yield ValidationError(_wrong_type("integer or string", instance))


def _properties(validator: Any, properties: Mapping[str, Schema], instance: Any, of: Schema) -> _Errors:
    if not validator.is_type(instance, "object"):
        return
    for key, inner in properties.items():
        if key in instance:
            yield from validator.descend(instance[key], inner, path=key, schema_path=key)
    if of.get("additionalProperties") or of.get("x-kubernetes-preserve-unknown-fields"):
        return
    for key in instance:
        if key not in properties:
            yield _error_at(key, _unknown(key, properties))


_INT64: Final = 2**63
_RANGES: Final = {"int32": 2**31, "int64": _INT64}


def _format(validator: Any, name: str, instance: Any, of: Schema) -> _Errors:
    if name not in _RANGES or of.get("type") != "integer" or not validator.is_type(instance, "integer"):
        return
    bound = _RANGES[name]
    # Bounds of the schema give a better message.
    if of.get("minimum", instance) <= instance <= of.get("maximum", instance) and not -bound <= instance < bound:
        yield ValidationError(_out_of_range(instance, bound))


def _out_of_range(value: float, bound: int) -> str:
    return f"{brief(value)} is out of range: write a number from {-bound} to {bound - 1}"


def _list_type(validator: Any, kind: str, instance: Any, of: Schema) -> _Errors:
    if kind == "atomic" or not validator.is_type(instance, "array"):
        return
    keys: Sequence[str] = of.get("x-kubernetes-list-map-keys") or ()
    seen: set[str] = set()
    # A key can have a default, such as protocol of ports.
    fields = (of.get("items") or {}).get("properties") or {}
    for index, item in enumerate(instance):
        if keys and not isinstance(item, Mapping):
            continue
        same = {key: item.get(key, (fields.get(key) or {}).get("default")) for key in keys} if keys else item
        name = json.dumps(same, sort_keys=True)
        if name in seen:
            what = ", ".join(f"{key} {brief(one)}" for key, one in same.items()) if keys else brief(item)
            yield _error_at(index, f"{what} is in the list twice: remove one")
        seen.add(name)


def without_nulls(of: Schema, value: Any) -> Any:
    """Remove null values that the schema does not permit, as the API server does before validation."""
    if isinstance(value, Mapping):
        properties: Mapping[str, Schema] = of.get("properties") or {}
        others = of.get("additionalProperties")
        others = others if isinstance(others, Mapping) else {}
        return {
            key: without_nulls(properties.get(key, others), inner)
            for key, inner in value.items()
            if inner is not None or key not in properties
        }
    if isinstance(value, list):
        return [without_nulls(of.get("items") or {}, inner) for inner in value]
    return value


# --- words

_KINDS: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "integer or string": "a whole number or a text",
}


def _wrong_type(kind: str, value: Any) -> str:
    words = f"this must be {_KINDS[kind]}, and is {brief(value)}"
    if "string" in kind and isinstance(value, bool | int | float):
        return f"{words}: put it in quotes"
    if kind in {"integer", "boolean"} and isinstance(value, str):
        return f"{words}: write it without quotes"
    return words


def _unknown(key: str, known: Any) -> str:
    near = difflib.get_close_matches(key, [*known], n=1)
    return NO_FIELD + (f": do you mean {near[0]}?" if near else "")


#: How values of a pattern look like, for patterns that users would not understand.
_FORMS: Final = {_QUANTITY: "is not a quantity: write a number, or one with a unit, such as 500m or 4Gi"}
_WORDS: Final[Mapping[str, Callable[[Any, Any], str]]] = {
    "type": _wrong_type,
    "enum": lambda wanted, found: f"{brief(found)} is none of {', '.join(map(str, wanted))}",
    "minimum": lambda wanted, found: f"{found} is too little: write {wanted} at least",
    "maximum": lambda wanted, found: f"{found} is too much: write {wanted} at most",
    "maxLength": lambda wanted, found: f"{brief(found)} is longer than {wanted} characters",
    "pattern": lambda wanted, found: f"{brief(found)} {_FORMS.get(wanted, f'does not have the form {wanted}')}",
    "minItems": lambda wanted, found: f"this has {len(found)} entries: write {wanted} at least",
    "maxItems": lambda wanted, found: f"this has {len(found)} entries: write {wanted} at most",
    "maxProperties": lambda wanted, found: f"this has {len(found)} entries: write {wanted} at most",
}


def _words_of(error: ValidationError) -> str:
    words = _WORDS.get(str(error.validator))
    return error.message if words is None else words(error.validator_value, error.instance)


#: The placeholder of values that only the API server can set.
UNKNOWN_UID: Final = "<uid>"


def declare(manifest: Manifest, namespace: str) -> TFCluster:
    """Read a TFCluster as the API server and the operator would; raises ManifestError if they would reject it."""
    refuse(manifest, problems(manifest.body))
    return read(manifest, complete(manifest.body, namespace))


def refuse(manifest: Manifest, found: Sequence[Problem]) -> None:
    """Raise ManifestError with the problems of a manifest, sorted by line, if there are any."""
    if not found:
        return
    what = f"{naming.KIND} {manifest.name}" if manifest.name else f"a {naming.KIND} without a name"
    told = sorted(found, key=lambda one: manifest.line_of(one.where))
    raise ManifestError(f"{what} is not valid:", [f"{manifest.place(one.where)}: {one}" for one in told])


def read(manifest: Manifest, body: Mapping[str, Any]) -> TFCluster:
    refuse(manifest, unreadable(body))
    return parse(body)


def unreadable(body: Mapping[str, Any]) -> list[Problem]:
    """Return problems that the operator rejects and the API server does not."""
    try:
        parse(body)
    except InvalidSpecError as error:
        told = (problem.partition(": ") for problem in error.problems)
        return [Problem(read_path(path), words) for path, _, words in told]
    return []


def complete(body: Mapping[str, Any], namespace: str, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
    about = {key: value for key, value in (body.get("metadata") or {}).items() if value is not None}
    known: Mapping[str, Any] = (live or {}).get("metadata") or {}
    identity = {"uid": known.get("uid", UNKNOWN_UID), "generation": known.get("generation", 1)}
    if "deletionTimestamp" in known:
        identity["deletionTimestamp"] = known["deletionTimestamp"]
    shaped = _shaped(body)
    shaped["metadata"] = {**about, "name": name_of(about), "namespace": about.get("namespace") or namespace, **identity}
    if live is not None and "status" in live:
        shaped["status"] = live["status"]
    return shaped
