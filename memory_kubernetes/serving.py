"""From a request to an answer: what a path and a method mean, and who carries them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from memory_kubernetes import discovery, pod_actions, refusals, scaling, writing
from memory_kubernetes.core import Actor
from memory_kubernetes.deleting import DeleteOptions, delete
from memory_kubernetes.messages import Answer, Request
from memory_kubernetes.reading import PARTIAL, encode_list, encode_partial
from memory_kubernetes.selectors import selector_of
from memory_kubernetes.state import Storage, Version
from memory_kubernetes.watching import Watch

if TYPE_CHECKING:
    from memory_kubernetes.server import MemoryKubernetes

Object = dict[str, Any]

_VERBS: Final = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", True): "create",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
_PATCHES: Final = ("application/merge-patch+json", "application/json-patch+json")
_UNKNOWN_PATCH: Final = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json-patch+json, application/merge-patch+json"
)


def read_request(
    method: str, url: str, *, params: Mapping[str, str], headers: Mapping[str, str], user: str, body: bytes | None
) -> Request:
    """Read a request as the server does.

    Args:
        method: the HTTP method.
        url: the URL, which may hold a query.
        params: more of the query.
        headers: the headers.
        user: who asks.
        body: the body.

    Returns:
        The request.
    """
    split = urlsplit(url)
    query = {**dict(parse_qsl(split.query, keep_blank_values=True)), **params}
    parsed = _parse(body)
    path = unquote(split.path)
    steps = [step for step in path.split("/") if step]
    common: dict[str, Any] = {"method": method.upper(), "path": path, "params": query, "headers": headers}
    common |= {"user": user, "body": parsed}
    if steps[:1] == ["api"]:
        group, version, rest = "", "".join(steps[1:2]), steps[2:]
    elif steps[:1] == ["apis"]:
        group, version, rest = "".join(steps[1:2]), "".join(steps[2:3]), steps[3:]
    else:
        return Request(**common)
    if not rest:
        return Request(**common)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    verb = _VERBS.get((common["method"], bool(name)), "")
    if verb in ("list", "get") and query.get("watch") in ("true", "1"):
        verb = "watch"
    if verb == "create" and not name and isinstance(parsed, dict):
        name = str((parsed.get("metadata") or {}).get("name") or "")
    return Request(
        **common,
        verb=verb,
        group=group,
        version=version,
        resource=plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _parse(body: bytes | None) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body


def serve(kube: MemoryKubernetes, request: Request) -> Answer:
    """Answer a request.

    Args:
        kube: the server.
        request: the request.

    Returns:
        The answer; a refusal is one.
    """
    try:
        for check in tuple(kube.authorize):
            check(request)
        return _serve(kube, request)
    except refusals.Refusal as refusal:
        return Answer.refusing(refusal)


def _serve(kube: MemoryKubernetes, request: Request) -> Answer:
    if not request.resource:
        if request.path in ("/readyz", "/livez", "/healthz"):
            return Answer(body=b"ok", headers={"Content-Type": "text/plain; charset=utf-8"})
        found = discovery.discover(request.path, (one.resource for one in kube.state.storages.values()))
        if found is None:
            raise refusals.NotServed
        return Answer.of(found)
    storage = kube.state.demand(request.resource)
    resource = storage.resource
    if (resource.group, resource.version) != (request.group, request.version):
        raise refusals.NotServed
    if request.subresource and request.subresource not in resource.subresources:
        raise refusals.NotServed
    if request.body is not None and not isinstance(request.body, (dict, list)):
        raise refusals.bad_request("the object provided is unrecognized (must be of type JSON)")
    actor = Actor(request.user, request.manager, request.params.get("dryRun") == "All")
    if request.verb in ("get", "list", "watch"):
        return _read(kube, storage, request)
    return _write(kube, storage, request, actor)


def _read(kube: MemoryKubernetes, storage: Storage, request: Request) -> Answer:
    accept = request.headers.get("Accept", "")
    if request.verb == "get":
        version = storage.demand(request.namespace, request.name)
        if request.subresource == "scale":
            return Answer.of(scaling.read_scale(storage.resource, version))
        return Answer.of(encode_partial(version) if PARTIAL in accept else version.encoded)
    namespace = request.namespace or None
    if request.verb == "watch":
        watch = Watch(kube.state, storage, namespace, request.params, accept)
        return Answer(headers={"Content-Type": "application/json"}, watch=watch)
    return Answer.of(encode_list(kube.state, storage, namespace, request.params, accept))


def _write(kube: MemoryKubernetes, storage: Storage, request: Request, actor: Actor) -> Answer:
    key = (request.namespace, request.name)
    body = request.body
    match request.verb:
        case "create":
            return _create(kube, storage, request, actor)
        case "patch" if request.headers.get("Content-Type", "").split(";")[0] not in _PATCHES:
            raise refusals.Refusal(415, "UnsupportedMediaType", _UNKNOWN_PATCH)
        case "patch":
            version = kube.apply_patch(storage, key, body, subresource=request.subresource, actor=actor)
        case "update" if isinstance(body, dict):
            existed = storage.find(*key) is not None
            version = kube.apply_replacement(storage, key, body, subresource=request.subresource, actor=actor)
            return _written(storage, request, version, status=200 if existed else 201)
        case "delete":
            options = DeleteOptions.read(body, request.params)
            version, gone = delete(kube, storage, storage.demand(*key), options, actor)
            if gone and not storage.resource.returns_deleted:
                return _deleted(storage, version)
        case "deletecollection":
            return _delete_collection(kube, storage, request, actor)
        case _:
            raise refusals.not_allowed()
    return _written(storage, request, version)


def _create(kube: MemoryKubernetes, storage: Storage, request: Request, actor: Actor) -> Answer:
    body = request.body
    if not isinstance(body, dict):
        raise refusals.bad_request("the object provided is unrecognized (must be of type JSON)")
    if not request.subresource:
        if request.path.rstrip("/").endswith(f"/{storage.resource.plural}"):
            version = writing.create(kube, storage, request.namespace, body, actor)
            return Answer.of(version.encoded, 201)
        raise refusals.not_allowed()
    version = storage.demand(request.namespace, request.name)
    if request.subresource == "binding":
        pod_actions.bind(kube, storage, version, str((body.get("target") or {}).get("name")))
    elif request.subresource == "eviction":
        options = DeleteOptions.read(body.get("deleteOptions"), {})
        pod_actions.evict(kube, storage, version, options, actor)
    else:
        raise refusals.not_allowed()
    return Answer.of({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _written(storage: Storage, request: Request, version: Version, *, status: int = 200) -> Answer:
    if request.subresource == "scale":
        return Answer.of(scaling.read_scale(storage.resource, version), status)
    return Answer.of(version.encoded, status)


def _deleted(storage: Storage, version: Version) -> Answer:
    metadata, resource = version.body["metadata"], storage.resource
    group = {"group": resource.group} if resource.group else {}
    details = {"name": metadata["name"], **group, "kind": resource.plural, "uid": metadata["uid"]}
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return Answer.of(body)


def _delete_collection(kube: MemoryKubernetes, storage: Storage, request: Request, actor: Actor) -> Answer:
    options = DeleteOptions.read(request.body, request.params)
    matches = selector_of(request.params.get("labelSelector", ""), request.params.get("fieldSelector", ""))
    found = [one for one in storage.every(request.namespace or None) if matches(one.body)]
    for version in found:
        delete(kube, storage, version, options, actor)
    head = {"kind": f"{storage.resource.kind}List", "apiVersion": storage.resource.api_version}
    metadata = {"resourceVersion": str(kube.revision)}
    return Answer.of({**head, "metadata": metadata, "items": [one.body for one in found]})
