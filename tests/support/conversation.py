"""One conversation for any API server: requests in order, and comparable responses.

The caller provides the server: a session with the interface of aiohttp's, and an empty namespace.
"""

from __future__ import annotations

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


def merge(fact: str, kind: Kind, name: str, body: Any, *, subresource: str = "", query: str = "") -> Step:
    return Step(fact, "PATCH", kind, name, subresource, body, query, MERGE)


def _apply(fact: str, kind: Kind, name: str, body: Any) -> Step:
    """Build a step that applies server-side, always with the same field manager."""
    return Step(fact, "PATCH", kind, name, "", body, "fieldManager=applier", "application/apply-patch+yaml")


def _pod(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "main", "image": "image:1"}],
            "automountServiceAccountToken": False,
            "schedulerName": "nobody",
            **spec,
        },
    }


def _config_map(name: str, **fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}, **fields}


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
    service = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"name": "x", "port": 80}]}}
    named = {"metadata": {"name": "t"}, "spec": {**service["spec"], "selector": {"a": "b"}}}
    return (
        # Pods.
        Step("a pod is created", "POST", PODS, body=_pod("p"), query="fieldManager=first"),
        Step("its name is taken", "POST", PODS, body=_pod("p")),
        Step("a bad name", "POST", PODS, body=_pod("Bad_Name")),
        Step("no name", "POST", PODS, body=_pod("")),
        Step("a bad label", "POST", PODS, body={**_pod("q"), "metadata": {"name": "q", "labels": {"a": "-"}}}),
        Step("a wrong namespace", "POST", PODS, body={**_pod("q"), "metadata": {"name": "q", "namespace": "other"}}),
        Step(
            "a version at creation", "POST", PODS, body={**_pod("q"), "metadata": {"name": "q", "resourceVersion": "7"}}
        ),
        Step("a trial", "POST", PODS, body=_pod("trial"), query="dryRun=All"),
        Step("a trial leaves nothing", "GET", PODS, "trial"),
        Step("it is read", "GET", PODS, "p"),
        merge("a patch that changes nothing", PODS, "p", {"metadata": {"labels": {"app": "x"}}}),
        merge(
            "an image",
            PODS,
            "p",
            {"spec": {"containers": [{"name": "main", "image": "image:2"}]}},
            query="fieldManager=second",
        ),
        merge("another host name", PODS, "p", {"spec": {"hostname": "other"}}),
        merge("another UID in a patch", PODS, "p", {"metadata": {"uid": other, "labels": {"b": "1"}}}),
        merge("an old version in a patch", PODS, "p", {"metadata": {"resourceVersion": "1", "labels": {"b": "1"}}}),
        merge("another name in a patch", PODS, "p", {"metadata": {"name": "other"}}),
        merge("the status of a pod through the pod", PODS, "p", {"status": {"phase": "Running"}}),
        merge("the spec of a pod through its status", PODS, "p", {"spec": {"hostname": "other"}}, subresource="status"),
        merge("nothing that exists", PODS, "nobody", {"metadata": {"labels": {"b": "1"}}}),
        Step(
            "a JSON patch",
            "PATCH",
            PODS,
            "p",
            body=[{"op": "add", "path": "/metadata/labels/b", "value": "1"}],
            content=JSON_PATCH,
        ),
        Step("an unknown patch", "PATCH", PODS, "p", body={}, content="text/plain"),
        Step("a bound pod", "POST", PODS, "p", "binding", bind),
        Step("bound twice", "POST", PODS, "p", "binding", bind),
        Step("bound pod read", "GET", PODS, "p"),
        Step("another UID in a deletion", "DELETE", PODS, "p", body={"preconditions": {"uid": other}}),
        Step("an old version in a deletion", "DELETE", PODS, "p", body={"preconditions": {"resourceVersion": "1"}}),
        Step("a graceful deletion", "DELETE", PODS, "p", body={"gracePeriodSeconds": 20}),
        Step("a longer grace", "DELETE", PODS, "p", body={"gracePeriodSeconds": 25}),
        Step("a shorter grace", "DELETE", PODS, "p", body={"gracePeriodSeconds": 10}),
        Step("the name of a leaving pod", "POST", PODS, body=_pod("p")),
        merge("a new finalizer on a leaving pod", PODS, "p", {"metadata": {"finalizers": ["example.com/late"]}}),
        Step("no grace", "DELETE", PODS, "p", body={"gracePeriodSeconds": 0}),
        Step("it is gone", "GET", PODS, "p"),
        Step("gone twice", "DELETE", PODS, "p"),
        Step(
            "a pod with a finalizer",
            "POST",
            PODS,
            body={**_pod("f"), "metadata": {"name": "f", "finalizers": ["example.com/x"]}},
        ),
        Step("the finalizer holds it", "DELETE", PODS, "f"),
        merge("the finalizer goes", PODS, "f", {"metadata": {"finalizers": None}}),
        Step("and the pod with it", "GET", PODS, "f"),
        Step("a pod without a node", "POST", PODS, body=_pod("w")),
        Step("a put with another UID", "PUT", PODS, "w", body=_with_metadata("a pod without a node", uid=other)),
        Step(
            "a put with an old version",
            "PUT",
            PODS,
            "w",
            body=_with_metadata("a pod without a node", resourceVersion="1"),
        ),
        Step("a put that changes nothing", "PUT", PODS, "w", body=lambda heard: heard["a pod without a node"]),
        Step("a put of nobody", "PUT", PODS, "nobody", body=_pod("nobody")),
        Step("it goes at once", "DELETE", PODS, "w"),
        Step("it goes at once, read", "GET", PODS, "w"),
        # ConfigMaps and Services.
        Step("a ConfigMap is created", "POST", CONFIG_MAPS, body=_config_map("m", immutable=True)),
        merge("what is immutable", CONFIG_MAPS, "m", {"data": {"a": "2"}}),
        Step("a ConfigMap is deleted", "DELETE", CONFIG_MAPS, "m"),
        # Server-side apply: a field that its manager no longer applies is removed, another manager's field stays.
        _apply("applied to nothing", CONFIG_MAPS, "n", _config_map("n", data={"a": "1", "b": "1"})),
        merge("set by another one", CONFIG_MAPS, "n", {"data": {"c": "1"}}),
        merge("a binary key", CONFIG_MAPS, "n", {"binaryData": {"d": "/w=="}}),
        merge("no binary key is left", CONFIG_MAPS, "n", {"binaryData": {"d": None}}),
        _apply("applied without a key", CONFIG_MAPS, "n", _config_map("n", data={"a": "2"})),
        _apply("applied with the same", CONFIG_MAPS, "n", _config_map("n", data={"a": "2"})),
        _apply("a TFCluster is applied", TFCLUSTERS, "d", _with_jobs(cluster, "worker", "ps")),
        merge("labelled by another one", TFCLUSTERS, "d", {"metadata": {"labels": {"a": "b"}}}),
        _apply("applied without a job", TFCLUSTERS, "d", _with_jobs(cluster, "worker")),
        Step("what was applied is deleted", "DELETE", TFCLUSTERS, "d"),
        Step("a Service is created", "POST", SERVICES, body=service),
        Step("a Service with a selector", "POST", SERVICES, body=named),
        Step("a bad Service name", "POST", SERVICES, body={**service, "metadata": {"name": "S_"}}),
        merge("a Service's address", SERVICES, "t", {"spec": {"clusterIP": "10.0.0.9"}}),
        merge("a Service's field", SERVICES, "s", {"spec": {"publishNotReadyAddresses": True}}),
        Step("a Service is deleted", "DELETE", SERVICES, "s"),
        # TFClusters.
        Step("a TFCluster is created", "POST", TFCLUSTERS, body={**cluster, "status": {"readyTasks": 9}}),
        Step("a TFCluster's name is taken", "POST", TFCLUSTERS, body=cluster),
        merge("its labels", TFCLUSTERS, "c", {"metadata": {"labels": {"a": "b"}}}),
        merge("its spec", TFCLUSTERS, "c", {"spec": {"suspend": True}}),
        merge("its status through itself", TFCLUSTERS, "c", {"status": {"readyTasks": 1}}),
        merge(
            "its status",
            TFCLUSTERS,
            "c",
            {"status": {"readyTasks": 1}, "spec": {"suspend": False}},
            subresource="status",
        ),
        merge(
            "its labels through its status", TFCLUSTERS, "c", {"metadata": {"labels": {"a": "c"}}}, subresource="status"
        ),
        merge(
            "another UID in its status",
            TFCLUSTERS,
            "c",
            {"metadata": {"uid": other}, "status": {"readyTasks": 2}},
            subresource="status",
        ),
        merge("another UID in a TFCluster", TFCLUSTERS, "c", {"metadata": {"uid": other}, "spec": {"suspend": False}}),
        merge(
            "an old version in its status",
            TFCLUSTERS,
            "c",
            {"metadata": {"resourceVersion": "1"}, "status": {"readyTasks": 3}},
            subresource="status",
        ),
        Step("its scale", "GET", TFCLUSTERS, "c", "scale"),
        merge("its scale patched", TFCLUSTERS, "c", {"spec": {"replicas": 5}}, subresource="scale"),
        Step("a put without a version", "PUT", TFCLUSTERS, "c", body=cluster),
        merge("a finalizer", TFCLUSTERS, "c", {"metadata": {"finalizers": ["example.com/x"]}}),
        Step("another UID in its deletion", "DELETE", TFCLUSTERS, "c", body={"preconditions": {"uid": other}}),
        Step("its finalizer holds it", "DELETE", TFCLUSTERS, "c"),
        Step("deleted twice", "DELETE", TFCLUSTERS, "c"),
        merge("it goes", TFCLUSTERS, "c", {"metadata": {"finalizers": []}}),
        Step("it went", "GET", TFCLUSTERS, "c"),
        # Lists, and resources that are not served.
        *(
            Step(
                f"one of three ({i})",
                "POST",
                CONFIG_MAPS,
                body={**_config_map(f"l{i}"), "metadata": {"name": f"l{i}", "labels": {"n": str(i)}}},
            )
            for i in range(3)
        ),
        Step("a page", "GET", CONFIG_MAPS, query="limit=2&fieldSelector=metadata.name!%3Dkube-root-ca.crt"),
        Step("in", "GET", CONFIG_MAPS, query="labelSelector=n+in+(0,2)"),
        Step("not in", "GET", CONFIG_MAPS, query="labelSelector=n+notin+(0,2),n"),
        Step("not equal", "GET", CONFIG_MAPS, query="labelSelector=n!%3D1,n"),
        Step("a field", "GET", CONFIG_MAPS, query="fieldSelector=metadata.name%3Dl1"),
        Step("a bad version", "GET", CONFIG_MAPS, query="resourceVersion=x"),
        Step("a bad continue", "GET", CONFIG_MAPS, query="continue=x&limit=1"),
        Step("a collection is deleted", "DELETE", CONFIG_MAPS, query="labelSelector=n+in+(0,2)"),
        Step("one is left", "GET", CONFIG_MAPS, query="labelSelector=n"),
        Step("a kind that nobody serves", "GET", Kind("v1", "nothings")),
        Step("a kind that nobody serves, beside a custom one", "GET", Kind("tfcluster.dev/v1alpha1", "nothings")),
        Step("a subresource that a custom kind lacks", "GET", TFCLUSTERS, "x", "nothing"),
        Step("a group that nobody serves", "GET", Kind("example.com/v1", "nothings")),
        Step("a subresource that nobody serves", "GET", CONFIG_MAPS, "l1", "nothing"),
        Step("a method that is not for a collection", "PUT", CONFIG_MAPS, body=_config_map("l1")),
        Step("a method that is not for an object", "POST", CONFIG_MAPS, "l1", body=_config_map("l1")),
    )


async def hold(session: Any, server: str, namespace: str, conversation: Sequence[Step]) -> dict[str, Any]:
    """Send all requests of the conversation.

    Returns:
        The status and the response of each fact, without what differs from server to server.
    """
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
        names = [item["metadata"]["name"] for item in answer["items"]]
        typed = sorted({key for item in answer["items"] for key in item} & {"kind", "apiVersion"})
        return (
            answer["kind"],
            names,
            typed,
            answer["metadata"].get("remainingItemCount"),
            "continue" in answer["metadata"],
        )
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
    events = [json.loads(line) for line in lines]
    return [
        (
            event["type"],
            event["object"].get("metadata", {}).get("name"),
            event["object"].get("metadata", {}).get("generation"),
            "deletionTimestamp" in event["object"].get("metadata", {}),
            event["object"].get("code"),
        )
        for event in events
    ]
