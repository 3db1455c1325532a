"""The discovery endpoints: which groups, versions and resources are served."""

from collections.abc import Iterable
from typing import Any, Final

from tfcluster.local.store.resources import Resource

Object = dict[str, Any]

_VERSION: Final = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1-memory",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "memory",
}


def discover(path: str, resources: Iterable[Resource]) -> Object | None:
    """Answer a path of discovery."""
    served = tuple(resources)
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(_groups(served))}
    found = [one for one in served if one.base == path]
    if not found:
        return None
    entries = [entry for one in found for entry in _entries(one)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": entries,
    }


def _groups(served: Iterable[Resource]) -> Iterable[Object]:
    seen: dict[str, set[str]] = {}
    for one in served:
        if one.group:
            seen.setdefault(one.group, set()).add(one.version)
    for group, versions in seen.items():
        listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in sorted(versions)]
        yield {"name": group, "versions": listed, "preferredVersion": listed[-1]}


def _entries(resource: Resource) -> Iterable[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    kinds = {"scale": "Scale", "binding": "Binding", "eviction": "Eviction"}
    for subresource in resource.subresources:
        yield {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kinds.get(subresource, resource.kind),
            "verbs": ["create"] if subresource in ("binding", "eviction") else ["get", "patch", "update"],
        }
