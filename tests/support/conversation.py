"""One conversation with any API server through a session like aiohttp's: requests in order, comparable responses."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .objects import CONFIG_MAPS, JSON_PATCH, MERGE, PODS, SERVICES, TFCLUSTERS, Kind, Object

#: Builds the namespaced part of a body from earlier responses, by the name of the step.
Body = Callable[[dict[str, Any]], Any]

#: The resource version that a deletion does not find, as in the server's message.
_RECORD = re.compile(r"in record \(\d+\)")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_METADATA = ("name", "labels", "annotations", "generation", "finalizers", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class Step:
    """One request: ``fact`` describes it, ``body`` can use the responses of earlier facts."""

    fact: str
    method: str
    kind: Kind
    name: str = ""
    subresource: str = ""
    body: Any = None
    query: str = ""
    content: str = "application/json"


def _post(fact: str, kind: Kind, body: Any, name: str = "", subresource: str = "", *, query: str = "") -> Step:
    return Step(fact, "POST", kind, name, subresource, body, query)


def _put(fact: str, kind: Kind, name: str, body: Any) -> Step:
    return Step(fact, "PUT", kind, name, body=body)


def _get(fact: str, kind: Kind, name: str = "", subresource: str = "", query: str = "") -> Step:
    return Step(fact, "GET", kind, name, subresource, query=query)


def _delete(fact: str, kind: Kind, name: str = "", body: Any = None, query: str = "") -> Step:
    return Step(fact, "DELETE", kind, name, body=body, query=query)


def _merge(fact: str, kind: Kind, name: str, body: Any, subresource: str = "", *, query: str = "") -> Step:
    return Step(fact, "PATCH", kind, name, subresource, body, query, MERGE)


def _apply(fact: str, kind: Kind, name: str, body: Any) -> Step:
    """Build a step that applies server-side, always with the same field manager."""
    return Step(fact, "PATCH", kind, name, "", body, "fieldManager=applier", "application/apply-patch+yaml")


def _pod(name: str, **metadata: Any) -> Object:
    containers = [{"name": "main", "image": "image:1"}]
    spec = {"containers": containers, "automountServiceAccountToken": False, "schedulerName": "nobody"}
    metadata = {"name": name, **(metadata or {"labels": {"app": "x"}})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _config_map(name: str, *, labels: Object | None = None, **fields: Any) -> Object:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}, **fields}


def _with_jobs(cluster: Object, *jobs: str) -> Object:
    """Build a TFCluster named "d" whose jobs are each the first of another TFCluster."""
    job = next(iter(cluster.get("spec", {"jobs": {"": {}}})["jobs"].values()))
    of_applied = {key: cluster.get(key, "") for key in ("apiVersion", "kind")}
    return {**of_applied, "metadata": {"name": "d"}, "spec": {"jobs": dict.fromkeys(jobs, job)}}


def _with_metadata(fact: str, **metadata: Any) -> Body:
    return lambda heard: {**heard[fact], "metadata": {**heard[fact]["metadata"], **metadata}}


def steps(cluster: Object) -> Sequence[Step]:
    bind = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    other = "00000000-0000-4000-8000-00000000ffff"
    label, another_image = {"labels": {"b": "1"}}, [{"name": "main", "image": "image:2"}]
    add_label = [{"op": "add", "path": "/metadata/labels/b", "value": "1"}]
    service = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"name": "x", "port": 80}]}}
    named = {"metadata": {"name": "t"}, "spec": {**service["spec"], "selector": {"a": "b"}}}
    old = {"resourceVersion": "1"}
    mixed = {"status": {"readyTasks": 1}, "spec": {"suspend": False}}
    relabelled = {"metadata": {"labels": {"a": "c"}}}
    status_of_another = {"metadata": {"uid": other}, "status": {"readyTasks": 2}}
    old_status = {"metadata": old, "status": {"readyTasks": 3}}
    return (
        # Pods.
        _post("a pod is created", PODS, _pod("p"), query="fieldManager=first"),
        _post("its name is taken", PODS, _pod("p")),
        _post("a bad name", PODS, _pod("Bad_Name")),
        _post("no name", PODS, _pod("")),
        _post("a bad label", PODS, _pod("q", labels={"a": "-"})),
        _post("a wrong namespace", PODS, _pod("q", namespace="other")),
        _post("a version at creation", PODS, _pod("q", resourceVersion="7")),
        _post("a trial", PODS, _pod("trial"), query="dryRun=All"),
        _get("a trial leaves nothing", PODS, "trial"),
        _get("it is read", PODS, "p"),
        _merge("a patch that changes nothing", PODS, "p", {"metadata": {"labels": {"app": "x"}}}),
        _merge("an image", PODS, "p", {"spec": {"containers": another_image}}, query="fieldManager=second"),
        _merge("another host name", PODS, "p", {"spec": {"hostname": "other"}}),
        _merge("another UID in a patch", PODS, "p", {"metadata": {"uid": other, **label}}),
        _merge("an old version in a patch", PODS, "p", {"metadata": {**old, **label}}),
        _merge("another name in a patch", PODS, "p", {"metadata": {"name": "other"}}),
        _merge("the status of a pod through the pod", PODS, "p", {"status": {"phase": "Running"}}),
        _merge("the spec of a pod through its status", PODS, "p", {"spec": {"hostname": "other"}}, "status"),
        _merge("nothing that exists", PODS, "nobody", {"metadata": label}),
        Step("a JSON patch", "PATCH", PODS, "p", body=add_label, content=JSON_PATCH),
        Step("an unknown patch", "PATCH", PODS, "p", body={}, content="text/plain"),
        _post("a bound pod", PODS, bind, "p", "binding"),
        _post("bound twice", PODS, bind, "p", "binding"),
        _get("bound pod read", PODS, "p"),
        _delete("another UID in a deletion", PODS, "p", {"preconditions": {"uid": other}}),
        _delete("an old version in a deletion", PODS, "p", {"preconditions": old}),
        _delete("a graceful deletion", PODS, "p", {"gracePeriodSeconds": 20}),
        _delete("a longer grace", PODS, "p", {"gracePeriodSeconds": 25}),
        _delete("a shorter grace", PODS, "p", {"gracePeriodSeconds": 10}),
        _post("the name of a leaving pod", PODS, _pod("p")),
        _merge("a new finalizer on a leaving pod", PODS, "p", {"metadata": {"finalizers": ["example.com/late"]}}),
        _delete("no grace", PODS, "p", {"gracePeriodSeconds": 0}),
        _get("it is gone", PODS, "p"),
        _delete("gone twice", PODS, "p"),
        _post("a pod with a finalizer", PODS, _pod("f", finalizers=["example.com/x"])),
        _delete("the finalizer holds it", PODS, "f"),
        _merge("the finalizer goes", PODS, "f", {"metadata": {"finalizers": None}}),
        _get("and the pod with it", PODS, "f"),
        _post("a pod without a node", PODS, _pod("w")),
        _put("a put with another UID", PODS, "w", _with_metadata("a pod without a node", uid=other)),
        _put("a put with an old version", PODS, "w", _with_metadata("a pod without a node", **old)),
        _put("a put that changes nothing", PODS, "w", _with_metadata("a pod without a node")),
        _put("a put of nobody", PODS, "nobody", _pod("nobody")),
        _delete("it goes at once", PODS, "w"),
        _get("it goes at once, read", PODS, "w"),
        # ConfigMaps and Services.
        _post("a ConfigMap is created", CONFIG_MAPS, _config_map("m", immutable=True)),
        _merge("what is immutable", CONFIG_MAPS, "m", {"data": {"a": "2"}}),
        _delete("a ConfigMap is deleted", CONFIG_MAPS, "m"),
        # Server-side apply: a field that its manager no longer applies is removed, another manager's field stays.
        _apply("applied to nothing", CONFIG_MAPS, "n", _config_map("n", data={"a": "1", "b": "1"})),
        _merge("set by another one", CONFIG_MAPS, "n", {"data": {"c": "1"}}),
        _merge("a binary key", CONFIG_MAPS, "n", {"binaryData": {"d": "/w=="}}),
        _merge("no binary key is left", CONFIG_MAPS, "n", {"binaryData": {"d": None}}),
        _apply("applied without a key", CONFIG_MAPS, "n", _config_map("n", data={"a": "2"})),
        _apply("applied with the same", CONFIG_MAPS, "n", _config_map("n", data={"a": "2"})),
        _apply("a TFCluster is applied", TFCLUSTERS, "d", _with_jobs(cluster, "worker", "ps")),
        _merge("labelled by another one", TFCLUSTERS, "d", {"metadata": {"labels": {"a": "b"}}}),
        _apply("applied without a job", TFCLUSTERS, "d", _with_jobs(cluster, "worker")),
        _delete("what was applied is deleted", TFCLUSTERS, "d"),
        _post("a Service is created", SERVICES, service),
        _post("a Service with a selector", SERVICES, named),
        _post("a bad Service name", SERVICES, {**service, "metadata": {"name": "S_"}}),
        _merge("a Service's address", SERVICES, "t", {"spec": {"clusterIP": "10.0.0.9"}}),
        _merge("a Service's field", SERVICES, "s", {"spec": {"publishNotReadyAddresses": True}}),
        _delete("a Service is deleted", SERVICES, "s"),
        # TFClusters.
        _post("a TFCluster is created", TFCLUSTERS, {**cluster, "status": {"readyTasks": 9}}),
        _post("a TFCluster's name is taken", TFCLUSTERS, cluster),
        _merge("its labels", TFCLUSTERS, "c", {"metadata": {"labels": {"a": "b"}}}),
        _merge("its spec", TFCLUSTERS, "c", {"spec": {"suspend": True}}),
        _merge("its status through itself", TFCLUSTERS, "c", {"status": {"readyTasks": 1}}),
        _merge("its status", TFCLUSTERS, "c", mixed, "status"),
        _merge("its labels through its status", TFCLUSTERS, "c", relabelled, "status"),
        _merge("another UID in its status", TFCLUSTERS, "c", status_of_another, "status"),
        _merge("another UID in a TFCluster", TFCLUSTERS, "c", {"metadata": {"uid": other}, "spec": {"suspend": False}}),
        _merge("an old version in its status", TFCLUSTERS, "c", old_status, "status"),
        _get("its scale", TFCLUSTERS, "c", "scale"),
        _merge("its scale patched", TFCLUSTERS, "c", {"spec": {"replicas": 5}}, "scale"),
        _put("a put without a version", TFCLUSTERS, "c", cluster),
        _merge("a finalizer", TFCLUSTERS, "c", {"metadata": {"finalizers": ["example.com/x"]}}),
        _delete("another UID in its deletion", TFCLUSTERS, "c", {"preconditions": {"uid": other}}),
        _delete("its finalizer holds it", TFCLUSTERS, "c"),
        _delete("deleted twice", TFCLUSTERS, "c"),
        _merge("it goes", TFCLUSTERS, "c", {"metadata": {"finalizers": []}}),
        _get("it went", TFCLUSTERS, "c"),
        # Lists, and resources that are not served.
        *(_post(f"one of three ({i})", CONFIG_MAPS, _config_map(f"l{i}", labels={"n": str(i)})) for i in range(3)),
        _get("a page", CONFIG_MAPS, query="limit=2&fieldSelector=metadata.name!%3Dkube-root-ca.crt"),
        _get("in", CONFIG_MAPS, query="labelSelector=n+in+(0,2)"),
        _get("not in", CONFIG_MAPS, query="labelSelector=n+notin+(0,2),n"),
        _get("not equal", CONFIG_MAPS, query="labelSelector=n!%3D1,n"),
        _get("a field", CONFIG_MAPS, query="fieldSelector=metadata.name%3Dl1"),
        _get("a bad version", CONFIG_MAPS, query="resourceVersion=x"),
        _get("a bad continue", CONFIG_MAPS, query="continue=x&limit=1"),
        _delete("a collection is deleted", CONFIG_MAPS, query="labelSelector=n+in+(0,2)"),
        _get("one is left", CONFIG_MAPS, query="labelSelector=n"),
        _get("a kind that nobody serves", Kind("v1", "nothings")),
        _get("a kind that nobody serves, beside a custom one", Kind("tfcluster.dev/v1alpha1", "nothings")),
        _get("a subresource that a custom kind lacks", TFCLUSTERS, "x", "nothing"),
        _get("a group that nobody serves", Kind("example.com/v1", "nothings")),
        _get("a subresource that nobody serves", CONFIG_MAPS, "l1", "nothing"),
        _put("a method that is not for a collection", CONFIG_MAPS, "", _config_map("l1")),
        _post("a method that is not for an object", CONFIG_MAPS, _config_map("l1"), "l1"),
    )


async def hold(session: Any, server: str, namespace: str, conversation: Sequence[Step]) -> dict[str, Any]:
    """Send all requests; return the status and the comparable response of each fact."""
    answers: dict[str, Any] = {}
    heard: dict[str, Any] = {}
    for step in conversation:
        url = server + step.kind.path(namespace, step.name, step.subresource) + (f"?{step.query}" if step.query else "")
        body = step.body(answers) if callable(step.body) else step.body
        data = None if body is None else json.dumps(body).encode()
        async with session.request(step.method, url, data=data, headers={"Content-Type": step.content}) as response:
            text = (await response.read()).decode()
            try:
                answers[step.fact] = json.loads(text)
            except ValueError:
                answers[step.fact] = text
            heard[step.fact] = (response.status, comparable(answers[step.fact], namespace))
    return heard


def comparable(answer: Any, namespace: str) -> Any:
    """Remove what differs between servers: UIDs, times, versions, defaults of other plug-ins."""
    if isinstance(answer, str):
        return answer
    if answer["kind"] == "Status":
        text = json.dumps(answer, sort_keys=True).replace(namespace, "NAMESPACE")
        return _without_diff(json.loads(_RECORD.sub("in record", _UID.sub("UID", text))))
    if "items" in answer:
        listed = answer["metadata"]
        names = [item["metadata"]["name"] for item in answer["items"]]
        typed = sorted({key for item in answer["items"] for key in item} & {"kind", "apiVersion"})
        return answer["kind"], names, typed, listed.get("remainingItemCount"), "continue" in listed
    metadata = answer["metadata"]
    kept: dict[str, Any] = {key: metadata[key] for key in _METADATA if key in metadata}
    kept["leaving"] = "deletionTimestamp" in metadata
    if answer["kind"] == "Pod":
        spec, status = answer["spec"], answer["status"]
        kept["images"] = [one["image"] for one in spec["containers"]]
        kept["spec"] = {key: spec.get(key) for key in ("nodeName", "hostname", "terminationGracePeriodSeconds")}
        kept["status"] = {key: status.get(key) for key in ("phase", "qosClass")}
        kept["conditions"] = [(one["type"], one["status"]) for one in status.get("conditions") or ()]
    else:
        kept |= {key: value for key, value in answer.items() if key != "metadata"}
    return kept


def _without_diff(status: Object) -> Object:
    # After the rule, the real server shows a Go diff of the whole spec.
    status["message"] = status.get("message", "").split("\n")[0]
    for cause in status.get("details", {}).get("causes", ()):
        cause["message"] = cause["message"].split("\n")[0]
    return status


async def watched(session: Any, server: str, namespace: str, kind: Kind, *, selector: str, since: str) -> list[Any]:
    """Watch for a second; return the type, name, generation and deletion mark of each event's object."""
    url = f"{server}{kind.path(namespace)}?watch=1&timeoutSeconds=1&resourceVersion={since}&labelSelector={selector}"
    async with session.get(url) as response:
        lines = b"".join([chunk async for chunk in response.content.iter_any()]).splitlines()
    events = [(event["type"], event["object"]) for event in map(json.loads, lines)]
    found = [(kind, one.get("metadata", {}), one.get("code")) for kind, one in events]
    return [(kind, m.get("name"), m.get("generation"), "deletionTimestamp" in m, code) for kind, m, code in found]
