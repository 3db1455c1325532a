"""The rules of each kind: its defaults, the fields that a write cannot change, and what is rejected."""

from typing import Any, Final

from tfcluster.local.store import names
from tfcluster.local.store.names import Errors
from tfcluster.local.store.resources import Resource
from tfcluster.manifest.shaping import shape

Object = dict[str, Any]

#: An update cannot change these; the server restores them.
_KEPT: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields")

_POD_DEFAULTS: Final[Object] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: Final[Object] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_MUTABLE_IN_PODS: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def fill_in(resource: Resource, body: Object) -> None:
    """Set the fields that the server sets at creation."""
    if resource.custom and resource.status:
        body.pop("status", None)
    if resource.schema is not None:
        shaped = shape(resource.schema, body)
        body.clear()
        body.update(shaped)
    if resource.plural == "networkpolicies":
        _fill_in_network_policy(body)
    if resource.group:
        return
    if resource.plural == "pods":
        _fill_in_pod(body)
    elif resource.plural == "services":
        _fill_in_service(body)
    elif resource.plural == "namespaces":
        body["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = body["metadata"]["name"]
        body["spec"] = {"finalizers": ["kubernetes"]}
        body["status"] = {"phase": "Active"}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def _fill_in_pod(body: Object) -> None:
    spec = body["spec"] = _without_nulls(body.get("spec") or {})
    _fill_in_pod_spec(spec)
    bounded = any(container["resources"] for container in spec.get("containers", ()))
    body["status"] = {"phase": "Pending", "qosClass": "Burstable" if bounded else "BestEffort"}


def _fill_in_pod_spec(spec: Object) -> None:
    for key, value in _POD_DEFAULTS.items():
        spec.setdefault(key, value)
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        for key, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(key, value)
        image = str(container.get("image", ""))
        latest = image.endswith(":latest") or ":" not in image.rsplit("/", 1)[-1]
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")


def _fill_in_service(body: Object) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4"])
    # Every Service gets the same address, because this control plane does not route traffic.
    spec.setdefault("clusterIP", "10.96.0.10")
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    body["status"] = {"loadBalancer": {}}


def _fill_in_network_policy(body: Object) -> None:
    spec = body["spec"] = _without_nulls(body.get("spec") or {})
    for rules in (spec.get("ingress") or (), spec.get("egress") or ()):
        for port in (port for rule in rules for port in rule.get("ports") or ()):
            port.setdefault("protocol", "TCP")
    spec.setdefault("policyTypes", ["Ingress", *(["Egress"] if spec.get("egress") else [])])


def errors_at_creation(resource: Resource, body: Object) -> Errors:
    """Return the errors of a new object."""
    found = names.errors_of(resource, body["metadata"].get("name", ""))
    found += names.label_errors(body["metadata"].get("labels"))
    if resource.plural == "pods" and not resource.group and not body["spec"].get("containers"):
        found.append(("spec.containers", "FieldValueRequired", "Required value"))
    return found


def put_back(resource: Resource, old: Object, new: Object, subresource: str) -> Object:
    """Restore the fields that this write cannot change."""
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key != "status"}
        if not resource.custom:  # A write of a pod's status can change its labels and annotations.
            kept["metadata"] = {**new["metadata"], "ownerReferences": old["metadata"].get("ownerReferences")}
        result = {**kept, **({"status": new["status"]} if "status" in new else {})}
    else:
        result = {**new, "kind": old["kind"], "apiVersion": old["apiVersion"]}
        if resource.status and subresource == "":
            result.pop("status", None)
            if "status" in old:
                result["status"] = old["status"]
    _fill_in_again(resource, old, result)
    metadata = {key: value for key, value in result["metadata"].items() if value or value == 0}
    before = old["metadata"]
    metadata.setdefault("uid", before["uid"])
    metadata["resourceVersion"] = before["resourceVersion"]
    for key in _KEPT:
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)
    first = {"kind": old["kind"], "apiVersion": old["apiVersion"], "metadata": metadata}
    return {**first, **{key: value for key, value in result.items() if key not in first}}


def _fill_in_again(resource: Resource, old: Object, new: Object) -> None:
    if resource.schema is not None:
        for key, value in shape(resource.schema, {k: v for k, v in new.items() if k != "metadata"}).items():
            new[key] = value
    elif resource.plural == "pods" and not resource.group and new.get("spec") is not old["spec"]:
        spec = {**(new.get("spec") or {})}
        for kind in ("containers", "initContainers"):
            if kind in spec:
                spec[kind] = [dict(container) for container in spec[kind]]
        _fill_in_pod_spec(spec)
        new["spec"] = spec
    elif resource.plural == "configmaps" and not resource.group:
        for key in ("data", "binaryData"):
            if not new.get(key):
                new.pop(key, None)


def errors_in_update(resource: Resource, old: Object, new: Object) -> Errors:
    """Return the errors of a change of an object."""
    before, after = old["metadata"], new["metadata"]
    # The real server validates the metadata of custom resources twice, and returns each error twice.
    times = 2 if resource.custom else 1
    found: Errors = times * [
        (f"metadata.{key}", "FieldValueInvalid", f'Invalid value: "{after.get(key, "")}": field is immutable')
        for key in ("namespace", "uid")
        if after.get(key, "") != before.get(key, "")
    ]
    if after.get("labels") != before.get("labels"):
        found += names.label_errors(after.get("labels"))
    if "deletionTimestamp" in before:
        known = before.get("finalizers") or ()
        added = [one for one in after.get("finalizers") or () if one not in known]
        if added:
            listed = ", ".join(f'"{one}"' for one in added)
            words = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            found.append(("metadata.finalizers", "FieldValueForbidden", words))
    if not resource.group and resource.plural in _ERRORS_IN:
        found += _ERRORS_IN[resource.plural](old, new)
    return found


def _errors_in_pod(old: Object, new: Object) -> Errors:
    if old["spec"] == new["spec"] or _without_mutable(old["spec"]) == _without_mutable(new["spec"]):
        return []
    changed = sorted(key for key in {*old["spec"], *new["spec"]} if old["spec"].get(key) != new["spec"].get(key))
    return [("spec", "FieldValueForbidden", f"Forbidden: {_MUTABLE_IN_PODS}\n  changed: {', '.join(changed)}")]


def _without_mutable(spec: Object) -> Object:
    rest = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    for kind in ("containers", "initContainers"):
        if kind in rest:
            rest[kind] = [{**container, "image": ""} for container in rest[kind]]
    return rest


def _errors_in_config_map(old: Object, new: Object) -> Errors:
    if not old.get("immutable"):
        return []
    words = "Forbidden: field is immutable when `immutable` is set"
    return [
        (field, "FieldValueForbidden", words)
        for field in ("immutable", "data", "binaryData")
        if old.get(field) != new.get(field)
    ]


def _errors_in_service(old: Object, new: Object) -> Errors:
    before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
    if before == after:
        return []
    words = f'Invalid value: ["{after or ""}"]: may not change once set'
    return [("spec.clusterIPs[0]", "FieldValueInvalid", words)]


_ERRORS_IN: Final = {"pods": _errors_in_pod, "configmaps": _errors_in_config_map, "services": _errors_in_service}


def counts_a_generation(resource: Resource, old: Object, new: Object) -> bool:
    """Return whether a change increments the generation."""
    if not resource.generation:
        return False
    return any(
        old.get(key) != new.get(key) for key in {*old, *new} if key not in ("metadata", "kind", "apiVersion", "status")
    )
