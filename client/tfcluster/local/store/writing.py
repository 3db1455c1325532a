"""Creating and changing objects."""

from typing import Any

from tfcluster.local.store import applying, names, patching, refusals, rules, scaling
from tfcluster.local.store.core import Actor, Core
from tfcluster.local.store.resources import Resource
from tfcluster.local.store.state import Storage, Version, private_copy

Object = dict[str, Any]


def create(core: Core, storage: Storage, namespace: str, body: Object, actor: Actor) -> Version:
    """Create an object, and return what is stored."""
    resource = storage.resource
    body = _with_identity(core, resource, namespace, body)
    name = body["metadata"].get("name", "")
    core.check_namespace(resource, namespace, name)
    rules.fill_in(resource, body)
    admitted = core.admit(storage, verb="create", actor=actor, subresource="", old=None, new=body) or body
    if admitted is not body:
        body = _ordered(resource, admitted)
        rules.fill_in(resource, body)
    if errors := rules.errors_at_creation(resource, body):
        raise refusals.invalid(resource, name, errors)
    if (holder := storage.find(namespace, name)) is not None:
        leaving = "deletionTimestamp" in holder.body["metadata"]
        raise refusals.already_exists(resource, name, leaving=leaving)
    metadata = body["metadata"]
    if resource.generation:
        metadata["generation"] = 1
    return Version(body) if actor.dry_run else core.state.commit(storage, "ADDED", body, None)


def _with_identity(core: Core, resource: Resource, namespace: str, body: Object) -> Object:
    if body.get("kind", resource.kind) != resource.kind:
        raise refusals.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): kind is {body['kind']}"
        )
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if value is not None}
    if metadata.get("resourceVersion"):
        raise refusals.Refusal(500, "", "resourceVersion should not be set on objects to be created")
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "generation", "resourceVersion"):
        metadata.pop(key, None)
    if resource.namespaced:
        if metadata.get("namespace", namespace) != namespace:
            raise refusals.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = core.state.new_uid()
    metadata["creationTimestamp"] = core.timestamp()
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = names.generate(metadata["generateName"], core.state.revision)
    return _ordered(resource, {**body, "metadata": metadata})


def _ordered(resource: Resource, body: Object) -> Object:
    # kind and apiVersion come first: Storage.prefix relies on it.
    first = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": body["metadata"]}
    return {**first, **{key: value for key, value in body.items() if key not in first}}


def update(core: Core, storage: Storage, version: Version, new: Object, *, subresource: str, actor: Actor) -> Version:
    """Store an object's next state, unless nothing changes, and return what is stored."""
    resource, old = storage.resource, version.body
    name = old["metadata"]["name"]
    new = rules.put_back(resource, old, new, subresource)
    admitted = core.admit(storage, verb="update", actor=actor, subresource=subresource, old=version, new=new) or new
    if admitted is not new:
        new = rules.put_back(resource, old, admitted, subresource)
    if new == old:
        return version
    if errors := rules.errors_in_update(resource, old, new):
        raise refusals.invalid(resource, name, errors)
    metadata = new["metadata"]
    if rules.counts_a_generation(resource, old, new):
        metadata["generation"] = old["metadata"]["generation"] + 1
    if actor.dry_run:
        return Version(new)
    if _is_released(old["metadata"], metadata):
        core.remove(storage, version)
        return Version(new)
    return core.state.commit(storage, "MODIFIED", new, version)


def _is_released(before: Object, after: Object) -> bool:
    if after.get("finalizers") or "deletionTimestamp" not in before:
        return False
    return not before.get("deletionGracePeriodSeconds")


def patch(
    core: Core, storage: Storage, key: tuple[str, str], change: Any, *, subresource: str, actor: Actor
) -> Version:
    """Apply a merge patch (a dict) or a JSON patch (a list) to the object of this namespace and name."""
    version = storage.demand(*key)
    old = version.body
    target = scaling.read_scale(storage.resource, version) if subresource == "scale" else old
    new = (patching.json_patch if isinstance(change, list) else patching.merge_patch)(target, change)
    if subresource == "scale":
        new = scaling.with_scale(storage.resource, old, new)
    _check_patched(storage.resource, old, new)
    return update(core, storage, version, new, subresource=subresource, actor=actor)


def apply(core: Core, storage: Storage, key: tuple[str, str], body: Object, *, actor: Actor) -> tuple[Version, bool]:
    """Apply server-side to the object of this namespace and name; return it, and whether it existed."""
    stored = storage.find(*key)
    if stored is None:
        metadata = {"name": key[1], **(body.get("metadata") or {})}
        version = create(core, storage, key[0], private_copy({**body, "metadata": metadata}), actor)
    else:
        before = core.last_applied.get((stored.body["metadata"]["uid"], actor.manager), {})
        new = applying.applied(stored.body, before, private_copy(body))
        _check_patched(storage.resource, stored.body, new)
        version = update(core, storage, stored, new, subresource="", actor=actor)
    if not actor.dry_run:
        core.last_applied[version.body["metadata"]["uid"], actor.manager] = private_copy(body)
    return version, stored is not None


def put(core: Core, storage: Storage, key: tuple[str, str], body: Object, *, subresource: str, actor: Actor) -> Version:
    """Replace the object of this namespace and name; some kinds are created by it."""
    version = storage.find(*key)
    if version is None and storage.resource.create_on_update and not subresource:
        metadata = {field: value for field, value in body["metadata"].items() if field != "resourceVersion"}
        return create(core, storage, key[0], {**body, "metadata": metadata}, actor)
    version = storage.demand(*key)
    if subresource == "scale":
        body = scaling.with_scale(storage.resource, version.body, body)
    return _replace(core, storage, version, body, subresource=subresource, actor=actor)


def _replace(
    core: Core, storage: Storage, version: Version, body: Object, *, subresource: str, actor: Actor
) -> Version:
    resource, old = storage.resource, version.body
    name = old["metadata"]["name"]
    metadata = dict(body.get("metadata") or {})
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{resource.group_resource}/{version.key}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
            f"UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
        )
        raise refusals.conflict(resource, name, why)
    if not metadata.get("resourceVersion") and not resource.unconditional_update:
        words = "Invalid value: 0: must be specified for an update"
        raise refusals.unversioned(resource, name, words)
    _check_version(resource, old, metadata)
    metadata.setdefault("name", name)
    if resource.namespaced:
        metadata.setdefault("namespace", old["metadata"]["namespace"])
    _check_name(old, metadata)
    if resource.plural == "services":  # an update without the address keeps it
        kept = {key: old["spec"][key] for key in ("clusterIP", "clusterIPs") if key in old["spec"]}
        body = {**body, "spec": {**kept, **body.get("spec", {})}}
    changed = {**body, "metadata": metadata}
    return update(core, storage, version, changed, subresource=subresource, actor=actor)


def _check_patched(resource: Resource, old: Object, new: Object) -> None:
    # Another UID in a patch is a change of an immutable field to the real server: 422, not 409; update() rejects it.
    metadata = new.get("metadata") or {}
    _check_name(old, metadata)
    _check_version(resource, old, metadata)


def _check_name(old: Object, metadata: Object) -> None:
    name = old["metadata"]["name"]
    if metadata.get("name") != name:
        raise refusals.bad_request(
            f"the name of the object ({metadata.get('name', '')}) does not match the name on the URL ({name})"
        )


def _check_version(resource: Resource, old: Object, metadata: Object) -> None:
    wanted = metadata.get("resourceVersion")
    if wanted and str(wanted) != old["metadata"]["resourceVersion"]:
        raise refusals.conflict(resource, old["metadata"]["name"])
