"""Every field that TFJob's API has gets a verdict.

The names are those of the CustomResourceDefinition of kubeflow/training-operator, branch release-1.9
(manifests/base/crds/kubeflow.org_tfjobs.yaml), and of the Go types of the versions before it.
"""

import copy
from typing import Any

import pytest
import yaml
from support.tfjob_map import FIELDS, field_of

from tfcluster.convert.conversion import convert
from tfcluster.convert.tfjob import Outcome, Path
from tfcluster.terminal import spelled

#: Every leaf outside of the PodSpec, with a value that it may have, by the field that it is in.
GROUPS = yaml.safe_load("""
"": {apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: mnist}}
# Those with a time or a number are of v1 in its first form and v1beta2; v1beta1 and v1alpha2 have two of them.
spec: {enableDynamicWorker: true, successPolicy: AllWorkers,
  activeDeadlineSeconds: 60, backoffLimit: 3, cleanPodPolicy: All, ttlSecondsAfterFinished: 60}
spec.runPolicy: {activeDeadlineSeconds: 60, backoffLimit: 3, cleanPodPolicy: All, ttlSecondsAfterFinished: 60,
  managedBy: kueue.x-k8s.io/multikueue, suspend: true}
spec.runPolicy.schedulingPolicy: {minAvailable: 2, priorityClass: high, queue: fast, scheduleTimeoutSeconds: 60}
spec.runPolicy.schedulingPolicy.minResources: {cpu: "2"}
spec.tfReplicaSpecs.Worker: {replicas: 2, restartPolicy: ExitCode}
spec.tfReplicaSpecs.Worker.template.metadata: {finalizers: [example.com/x], name: x, namespace: x}
spec.tfReplicaSpecs.Worker.template.metadata.annotations: {a: b}
spec.tfReplicaSpecs.Worker.template.metadata.labels: {a: b}
status: {conditions: [{type: Created, status: "True"}], completionTime: "2026-01-01T00:00:00Z",
  lastReconcileTime: "2026-01-01T00:00:00Z", startTime: "2026-01-01T00:00:00Z"}
status.replicaStatuses.Worker: {active: 1, failed: 1, selector: a=b, succeeded: 1}
status.replicaStatuses.Worker.labelSelector.matchLabels: {a: b}
""")
LEAVES: list[tuple[Path, Any]] = [
    ((*filter(None, at.split(".")), key), value) for at, leaves in GROUPS.items() for key, value in leaves.items()
]

#: Every field of the PodSpec there.  Values as a pod may have them where the conversion looks into the field.
POD_SPEC: dict[str, Any] = yaml.safe_load("""
{hostIPC: true, hostNetwork: true, hostPID: true, setHostnameAsFQDN: true, shareProcessNamespace: true,
 automountServiceAccountToken: false, enableServiceLinks: false, hostUsers: false, hostname: x, subdomain: x,
 serviceAccount: trainer, serviceAccountName: trainer, resourceClaims: [{name: x}], schedulingGates: [{name: x}],
 activeDeadlineSeconds: 60, priority: 7, terminationGracePeriodSeconds: 5, priorityClassName: high, nodeName: n1,
 nodeSelector: {gpu: h100}, affinity: {nodeAffinity: {}}, os: {name: linux}, runtimeClassName: gvisor,
 schedulerName: volcano, preemptionPolicy: Never, overhead: {cpu: "1"}, restartPolicy: Always, dnsPolicy: Default,
 dnsConfig: {searches: [example.com]}, tolerations: [{operator: Exists}],
 topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}],
 ephemeralContainers: [{name: debug}], hostAliases: [{ip: 10.0.0.1, hostnames: [a]}],
 imagePullSecrets: [{name: registry}], initContainers: [{name: fetch, image: i}],
 readinessGates: [{conditionType: x}], securityContext: {runAsNonRoot: true},
 volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}
""")
CONTAINERS = [{"name": "tensorflow", "image": "i", "command": ["run"]}]


def with_leaf(path: Path, value: Any) -> dict[str, Any]:
    """Make a TFJob that has this value and little else."""
    manifest: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist"},
        "spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": copy.deepcopy(CONTAINERS)}}}}},
    }
    node: Any = manifest
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = value
    return manifest


@pytest.mark.parametrize(("path", "value"), LEAVES, ids=lambda one: spelled(one) if isinstance(one, tuple) else "")
def test_every_leaf_has_a_verdict(path: Path, value: Any):
    conversion = convert(with_leaf(path, value))
    about = [one for one in conversion.verdicts if one.path and path[: len(one.path)] == one.path]
    if path == ("metadata",):
        about = [one for one in conversion.verdicts if one.path[:1] == path]
    assert about, "it was dropped in silence"
    field = field_of(about[0])
    assert field is not None
    assert {one.outcome for one in about} <= set(field.outcomes) | {Outcome.SAME}
    for verdict in about:
        assert verdict.outcome is Outcome.SAME or verdict.words


@pytest.mark.parametrize("name", [*POD_SPEC])
def test_every_field_of_the_pod_is_carried_or_named(name: str):
    path: Path = ("spec", "tfReplicaSpecs", "Worker", "template", "spec", name)
    value = POD_SPEC[name]
    conversion = convert(with_leaf(path, value))
    told = [one for one in conversion.verdicts if one.path[: len(path)] == path]
    if told:
        assert all(one.outcome is not Outcome.SAME and one.words for one in told)
    if conversion.cluster is not None and any(not one.target for one in told):
        assert name not in conversion.cluster["spec"]["jobs"]["worker"]["template"]["spec"]
    elif conversion.cluster is not None or not told:
        assert conversion.cluster is not None
        assert conversion.cluster["spec"]["jobs"]["worker"]["template"]["spec"][name] == value
    named = {"ephemeralContainers", "hostNetwork", "hostname", "restartPolicy", "schedulerName", "subdomain"}
    assert bool(told) == (name in named)


def test_the_map_names_each_field_once():
    paths = [field.path or field.becomes for field in FIELDS]
    assert sorted(set(paths)) == sorted(paths)
    for path, _ in LEAVES:
        assert any(field.covers(path) for field in FIELDS), spelled(path)
