"""From a request to an answer: what a path and a method mean, and who carries them out."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tfcluster.local.store import binding, discovery, refusals, scaling, writing
from tfcluster.local.store.core import Actor, Core
from tfcluster.local.store.deleting import DeleteOptions, delete
from tfcluster.local.store.messages import Answer, Request
from tfcluster.local.store.reading import PARTIAL, encode_items, encode_list, encode_partial
from tfcluster.local.store.selectors import selector_of
from tfcluster.local.store.state import Storage, Version, encode
from tfcluster.local.store.watching import Watch

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
_APPLY: Final = "application/apply-patch+yaml"
_PATCHES: Final = ("application/merge-patch+json", "application/json-patch+json")


def read_request(
    method: str, url: str, *, params: Mapping[str, str], headers: Mapping[str, str], user: str, body: bytes | None
) -> Request:
    """Read a request as the server does."""
    place, query = _read_url(url)
    parsed = _parse(body)
    asked = {**query, **params} if query else params
    method = method.upper()
    name = place.name
    verb = _VERBS.get((method, bool(name)), "") if place.resource else ""
    if verb in ("list", "get") and asked.get("watch") in ("true", "1"):
        verb = "watch"
    if verb == "create" and not name and isinstance(parsed, dict):
        name = str((parsed.get("metadata") or {}).get("name") or "")
    return Request(
        method=method,
        path=place.path,
        params=asked,
        headers=headers,
        user=user,
        verb=verb,
        group=place.group,
        version=place.version,
        resource=place.resource,
        subresource=place.subresource,
        namespace=place.namespace,
        name=name,
        body=parsed,
    )


class _Place(NamedTuple):
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@lru_cache(maxsize=4096)
def _read_url(url: str) -> tuple[_Place, Mapping[str, str]]:
    split = urlsplit(url)
    return _read_path(unquote(split.path)), dict(parse_qsl(split.query, keep_blank_values=True))


def _read_path(path: str) -> _Place:
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["api"]:
        group, version, rest = "", "".join(steps[1:2]), steps[2:]
    elif steps[:1] == ["apis"]:
        group, version, rest = "".join(steps[1:2]), "".join(steps[2:3]), steps[3:]
    else:
        return _Place(path)
    if not rest:
        return _Place(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    return _Place(path, group, version, plural, namespace, name, subresource)


def _parse(body: bytes | None) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body


def serve(core: Core, request: Request) -> Answer:
    """Answer a request; a rejection is an answer."""
    try:
        return _serve(core, request)
    except refusals.Refusal as refusal:
        return Answer.refusing(refusal)


def _serve(core: Core, request: Request) -> Answer:
    if not request.resource:
        if request.path in ("/readyz", "/livez", "/healthz"):
            return Answer(body=b"ok", headers={"Content-Type": "text/plain; charset=utf-8"})
        found = discovery.discover(request.path, (one.resource for one in core.state.storages.values()))
        if found is None:
            raise refusals.NotServed
        return Answer.of(found)
    storage = _storage_of(core, request)
    if request.body is not None and not isinstance(request.body, (dict, list)):
        raise refusals.bad_request("the object provided is unrecognized (must be of type JSON)")
    actor = Actor(request.user, request.manager, request.params.get("dryRun") == "All")
    if request.verb in ("get", "list", "watch"):
        return _read(core, storage, request)
    return _write(core, storage, request, actor)


def _storage_of(core: Core, request: Request) -> Storage:
    storage = core.state.storages.get(request.resource)
    asked = (request.group, request.version)
    if storage is not None and (storage.resource.group, storage.resource.version) == asked:
        if not request.subresource or request.subresource in storage.resource.subresources:
            return storage
        if storage.resource.custom:
            raise refusals.not_found(storage.resource, request.name)
        raise refusals.NotServed(built_in=True)
    known = (one.resource for one in core.state.storages.values())
    raise refusals.NotServed(built_in=any((one.group, one.version) == asked and not one.custom for one in known))


def _read(core: Core, storage: Storage, request: Request) -> Answer:
    accept = request.headers.get("Accept", "")
    if request.verb == "get":
        version = storage.demand(request.namespace, request.name)
        if request.subresource == "scale":
            return Answer.of(scaling.read_scale(storage.resource, version))
        return Answer.of(encode_partial(version) if PARTIAL in accept else version.encoded)
    namespace = request.namespace or None
    if request.verb == "watch":
        watch = Watch(core.state, storage, namespace, request.params, accept)
        return Answer(headers={"Content-Type": "application/json"}, watch=watch)
    return Answer.of(encode_list(core.state, storage, namespace, request.params, accept))


def _write(core: Core, storage: Storage, request: Request, actor: Actor) -> Answer:
    key = (request.namespace, request.name)
    body = request.body
    match request.verb:
        case "create":
            return _create(core, storage, request, actor)
        case "patch" if _content_type(request) == _APPLY and isinstance(body, dict) and not request.subresource:
            version, existed = writing.apply(core, storage, key, body, actor=actor)
            return _written(storage, request, version, status=200 if existed else 201)
        case "patch" if _content_type(request) not in _PATCHES:
            raise refusals.Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        case "patch":
            version = writing.patch(core, storage, key, body, subresource=request.subresource, actor=actor)
        case "update" if isinstance(body, dict):
            existed = storage.find(*key) is not None
            version = writing.put(core, storage, key, body, subresource=request.subresource, actor=actor)
            return _written(storage, request, version, status=200 if existed else 201)
        case "delete":
            options = DeleteOptions.read(body, request.params)
            version, gone = delete(core, storage, storage.demand(*key), options, actor)
            if gone and not storage.resource.returns_deleted:
                return _deleted(storage, version)
        case "deletecollection":
            return _delete_collection(core, storage, request, actor)
        case _:
            raise refusals.not_allowed()
    return _written(storage, request, version)


def _create(core: Core, storage: Storage, request: Request, actor: Actor) -> Answer:
    body = request.body
    if not isinstance(body, dict):
        raise refusals.bad_request("the object provided is unrecognized (must be of type JSON)")
    if not request.subresource:
        if request.path.rstrip("/").endswith(f"/{storage.resource.plural}"):
            version = writing.create(core, storage, request.namespace, body, actor)
            return Answer.of(version.encoded, 201)
        raise refusals.not_allowed()
    version = storage.demand(request.namespace, request.name)
    if request.subresource != "binding":
        raise refusals.not_allowed()
    binding.bind(core, storage, version, str((body.get("target") or {}).get("name")))
    return Answer.of({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _content_type(request: Request) -> str:
    return request.headers.get("Content-Type", "").split(";")[0]


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


def _delete_collection(core: Core, storage: Storage, request: Request, actor: Actor) -> Answer:
    options = DeleteOptions.read(request.body, request.params)
    matches = selector_of(request.params.get("labelSelector", ""), request.params.get("fieldSelector", ""))
    found = [one for one in storage.every(request.namespace or None) if matches(one.body)]
    for version in found:
        delete(core, storage, version, options, actor)
    metadata = {"resourceVersion": str(core.state.revision)}
    head = {"kind": f"{storage.resource.kind}List", "apiVersion": storage.resource.api_version, "metadata": metadata}
    items = b",".join(encode_items(storage, found, partial=False))
    return Answer.of(encode(head)[:-1] + b',"items":[' + items + b"]}")
