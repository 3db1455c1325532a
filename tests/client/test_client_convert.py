"""What becomes of a TFJob: each value is carried over, written out, or named."""

from typing import Any

import pytest
import yaml
from support.tfjob_map import FIELDS, field_of
from support.tfjobs import REFUSED, TFJOBS

from tfcluster.convert.conversion import Conversion, convert, convert_text
from tfcluster.convert.tfjob import Outcome, leaves
from tfcluster.manifest.yaml import documents
from tfcluster.terminal import spelled

MAIN = {"name": "tensorflow", "image": "i"}


def tfjob(replicas: dict[str, Any] | None = None, *, name: str = "mnist", **spec: Any) -> dict[str, Any]:
    """Make a TFJob; what is said of a type comes beside a template."""
    template = {"spec": {"containers": [{**MAIN, "command": ["run"]}]}}
    specs = {key: {"template": template, **more} for key, more in (replicas or {"Worker": {}}).items()}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}}
    return {**job, "spec": {"tfReplicaSpecs": specs, **spec}}


def workers(spec: dict[str, Any], *, metadata: Any = None, **fields: Any) -> dict[str, Any]:
    """Make a TFJob of workers whose pods have this spec besides a container."""
    template = {"spec": {"containers": [MAIN], **spec}, **({} if metadata is None else {"metadata": metadata})}
    return tfjob({"Worker": {"template": template, **fields}})


def spec_of(manifest: dict[str, Any]) -> dict[str, Any]:
    conversion = convert(manifest)
    assert conversion.cluster is not None, [str(one) for one in conversion.of(Outcome.REJECTED)]
    return conversion.cluster["spec"]


def words(manifest: dict[str, Any], outcome: Outcome, path: str) -> str:
    return "; ".join(one.words for one in convert(manifest).of(outcome) if spelled(one.path) == path)


def test_defaults_that_differ_are_written_out():
    spec = spec_of(tfjob({"Worker": {"replicas": 1}}))
    assert spec["jobs"]["worker"]["restartPolicy"] == "Never"
    assert spec["cleanPodPolicy"] == "None"
    assert "backoffLimit" not in spec
    for version in ("v1beta2", "v1beta1", "v1alpha2"):
        assert spec_of({**tfjob(), "apiVersion": f"kubeflow.org/{version}"})["cleanPodPolicy"] == "Running"


@pytest.mark.parametrize(
    ("replicas", "policy", "expected", "outcome"),
    [
        ({"Chief": {}, "Worker": {"replicas": 3}}, None, None, None),
        ({"Master": {}, "Worker": {"replicas": 3}}, None, ["master"], Outcome.EXPLICIT),
        ({"Worker": {"replicas": 3}}, None, ["worker"], Outcome.LOSSY),
        ({"Worker": {"replicas": 3}}, "AllWorkers", ["worker"], Outcome.SAME),
        ({"Worker": {}}, None, None, None),
        ({"Chief": {}, "Worker": {"replicas": 3}}, "AllWorkers", None, Outcome.NOTED),
        ({"Worker": {"replicas": 3}}, "Majority", ["worker"], Outcome.LOSSY),
        ({"PS": {}}, None, None, Outcome.NOTED),
        ({"Worker": {"replicas": 3, "restartPolicy": "Always"}}, None, None, Outcome.NOTED),
        ({"Worker": {"replicas": 0}, "PS": {}}, None, None, Outcome.LOSSY),
    ],
)
def test_who_decides(replicas: Any, policy: str | None, expected: list[str] | None, outcome: Outcome | None):
    conversion = convert(tfjob(replicas, **({} if policy is None else {"successPolicy": policy})))
    assert conversion.cluster is not None
    found = conversion.cluster["spec"].get("successPolicy")
    assert found == (None if expected is None else {"jobs": expected, "tasks": "All"})
    about = [one.outcome for one in conversion.verdicts if one.path == ("spec", "successPolicy")]
    assert (outcome in about) if outcome else about == []


def test_run_policy_is_carried_over_from_both_places():
    older = {"backoffLimit": 0, "activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0, "cleanPodPolicy": "All"}
    fields = {**older, "suspend": True}
    assert spec_of(tfjob(runPolicy=fields)).items() >= fields.items()
    assert spec_of(tfjob(**older)).items() >= older.items()
    both = tfjob(runPolicy={"backoffLimit": 5}, backoffLimit=7)
    assert spec_of(both)["backoffLimit"] == 5
    assert "runPolicy.backoffLimit decides" in words(both, Outcome.LEFT_OUT, "spec.backoffLimit")


def test_who_manages_it():
    ours = tfjob(runPolicy={"managedBy": "kubeflow.org/training-operator"})
    kueue = tfjob(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    assert "managedBy" not in spec_of(ours)
    assert spec_of(kueue)["managedBy"] == "kueue.x-k8s.io/multikueue"
    assert "nothing runs" in words(kueue, Outcome.LOSSY, "spec.runPolicy.managedBy")
    assert convert(tfjob(runPolicy={"managedBy": "example.com/me"})).cluster is None


def test_types_in_any_case():
    jobs = spec_of(tfjob({key: {} for key in ("WORKER", "Ps", "eValuator", "chief")}))["jobs"]
    assert list(jobs) == ["worker", "ps", "evaluator", "chief"]


def test_dynamic_workers_become_device_filters():
    replicas = {"Chief": {}, "PS": {"replicas": 2}, "Worker": {"replicas": 3}, "Evaluator": {}}
    manifest = tfjob(replicas, enableDynamicWorker=True)
    jobs = spec_of(manifest)["jobs"]
    assert jobs["worker"]["deviceFilters"] == ["/job:ps"]
    assert jobs["ps"]["taskDeviceFilters"] == {"0": ["/job:ps/task:0"], "1": ["/job:ps/task:1"]}
    assert not {"deviceFilters", "taskDeviceFilters"} & (jobs["chief"].keys() | jobs["evaluator"].keys())
    assert jobs["worker"]["restartPolicy"] == "OnFailure"
    assert "continues" in words(manifest, Outcome.LOSSY, "spec.tfReplicaSpecs.Worker.restartPolicy")
    alone = spec_of(tfjob({"Worker": {"replicas": 2}}, enableDynamicWorker=True))["jobs"]["worker"]
    assert alone["taskDeviceFilters"] == {"0": ["/job:worker/task:0"], "1": ["/job:worker/task:1"]}
    many = tfjob({"PS": {"replicas": 513}, "Worker": {}}, enableDynamicWorker=True)
    assert spec_of(many)["jobs"]["ps"]["deviceFilters"] == ["/job:ps"]
    assert "513" not in words(many, Outcome.LOSSY, "spec.enableDynamicWorker") != ""


def test_tf_config_is_set_where_tfjob_sets_it():
    assert spec_of(tfjob({"Worker": {"replicas": 2}}))["resolver"] == {"tfConfig": "Environment"}
    assert spec_of(tfjob())["resolver"] == {"delivery": "None"}
    many = tfjob({"Worker": {"replicas": 1001}})
    assert "resolver" not in spec_of(many)
    assert "tfcluster_resolver exec" in words(many, Outcome.LOSSY, "spec.tfReplicaSpecs")


def test_quantities_with_a_point_are_texts():
    """The definition takes whole numbers and texts alone; the API server would refuse the rest."""
    container = {**MAIN, "resources": {"limits": {"cpu": 0.5, "memory": 1.0, "a.b/gpu": 1}}}
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": 1e9}}]
    job = workers({"containers": [container], "volumes": volumes, "overhead": {"cpu": 0.25}})
    kept = spec_of(job)["jobs"]["worker"]["template"]["spec"]
    assert kept["containers"][0]["resources"]["limits"] == {"cpu": "0.5", "memory": "1", "a.b/gpu": 1}
    assert (kept["volumes"][0]["emptyDir"], kept["overhead"]) == ({"sizeLimit": "1000000000"}, {"cpu": "0.25"})


@pytest.mark.parametrize(("policy", "outcomes"), [("OnFailure", {0: "lossy", 1: "lossy", 3: "noted"}), ("Never", {})])
def test_folders_that_a_restart_changes_are_named(policy: str, outcomes: dict[int, str]):
    """A restarted task gets a new pod: volumes of a pod are empty then, and a hostPath is another node's."""
    claim = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    sources = [
        {"emptyDir": {}},
        {"ephemeral": claim},
        {"emptyDir": {"medium": "Memory"}},
        {"hostPath": {"path": "/data"}},
    ]
    volumes = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    verdicts = convert(workers({"volumes": volumes}, restartPolicy=policy)).verdicts
    found = {one.path[6]: one.outcome for one in verdicts if one.path[5:6] == ("volumes",)}
    assert found == outcomes


@pytest.mark.parametrize(
    ("annotations", "scheduler", "gang"),
    [
        ({"scheduling.k8s.io/group-name": "mnist"}, None, True),
        ({"scheduling.k8s.io/group-name": "mine"}, None, False),
        ({}, "volcano", True),
        ({}, "yunikorn", False),
    ],
)
def test_pods_that_wait_for_a_pod_group_become_a_gang(annotations, scheduler, gang):
    spec = {"schedulerName": scheduler} if scheduler else {}
    conversion = convert(workers(spec, metadata={"annotations": annotations}))
    converted = conversion.cluster["spec"]
    assert ("scheduling" in converted) == gang
    kept = converted["jobs"]["worker"]["template"]
    assert (kept.get("metadata") or {}).get("annotations", {}) == ({} if gang else annotations)
    assert kept["spec"].get("schedulerName") == scheduler


def test_ports_are_found_by_their_name():
    def template(port: int) -> dict[str, Any]:
        ports = [{"name": "other", "containerPort": 1}, {"name": "tfjob-port", "containerPort": port}]
        container = {**MAIN, "ports": ports}
        side = {"name": "side", "image": "i", "ports": [{"name": "tfjob-port", "containerPort": 9}]}
        return {"template": {"spec": {"containers": [side, container]}}}

    def found(worker: dict[str, Any]) -> list[int | None]:
        spec = spec_of(tfjob({"Chief": template(5000), "Worker": worker}))
        return [one.get("port") for one in (spec, *spec["jobs"].values())]

    assert found(template(5000)) == [5000, None, None]
    assert found({}) == [None, 5000, None]


@pytest.mark.parametrize("name", [*TFJOBS])
def test_nothing_is_dropped_in_silence(name: str):
    for conversion, manifest in conversions(name):
        told = {one.path for one in conversion.verdicts if one.outcome is not Outcome.SAME} | TRANSLATED
        gone = {path for path in told if path and path not in conversion.moved}
        kept = {(path, repr(value)) for path, value in leaves(conversion.cluster)}
        for path, value in leaves(manifest):
            if value is None or value in ({}, []) or path in told or any(path[: len(one)] == one for one in gone):
                continue
            at = max((one for one in conversion.moved if path[: len(one)] == one), key=len, default=None)
            assert at is not None, spelled(path)
            assert ((*conversion.moved[at], *path[len(at) :]), repr(value)) in kept, f"{spelled(path)} = {value!r}"


#: What has another value in a TFCluster.
TRANSLATED = {("apiVersion",), ("kind",), ("spec", "successPolicy"), ("spec", "enableDynamicWorker")}


def conversions(name: str) -> list[tuple[Conversion, dict[str, Any]]]:
    """Convert the TFJobs of one manifest, as plain values."""
    (read,) = (one.value for one in documents(TFJOBS[name].encode()))
    found = read["items"] if read["kind"] == "List" else [read]
    return [(convert(one), one) for one in found if one["kind"] == "TFJob"]


@pytest.mark.parametrize("name", [*TFJOBS, *REFUSED])
def test_every_verdict_is_in_the_field_map(name: str):
    text = TFJOBS[name] if name in TFJOBS else REFUSED[name][0]
    for conversion in convert_text(text.encode(), "f").conversions:
        for verdict in conversion.verdicts:
            field = field_of(verdict)
            if not verdict.path and verdict.outcome in (Outcome.REJECTED, Outcome.NOTED) and field is None:
                continue  # what the API server would say of the result
            assert field is not None, str(verdict)
            assert verdict.outcome in {*field.outcomes, Outcome.REJECTED}, str(verdict)


def test_field_map_promises_nothing_that_never_happens():
    texts = [*TFJOBS.values()] + [text for text, _ in REFUSED.values()]
    verdicts = [v for text in texts for c in convert_text(text.encode(), "f").conversions for v in c.verdicts]
    verdicts += [v for manifest in ODD for v in convert(manifest).verdicts]
    given = {(field, verdict.outcome) for verdict in verdicts if (field := field_of(verdict)) is not None}
    promised = {(field, outcome) for field in FIELDS for outcome in field.outcomes}
    missing = sorted(f"{field.path or field.becomes}: {outcome}" for field, outcome in promised - given)
    assert missing == []


def with_template(**more: Any) -> dict[str, Any]:
    spec = {"containers": [{**MAIN, "command": ["run"]}], **more.pop("spec", {})}
    return tfjob({"Chief": {"template": {"spec": spec, **more}}})


_SECONDS = ("activeDeadlineSeconds", "ttlSecondsAfterFinished")
_CONTAINERS = [{"name": "first", "image": "i"}]
_OURS = [{**MAIN, "volumeMounts": [{"name": "v", "mountPath": "/etc/tfcluster/x"}], "env": [{"name": "TFCLUSTER_JOB"}]}]
#: Manifests for the verdicts that no sound manifest gets.
ODD = [
    {**tfjob(), "status": {"startTime": "now"}},
    {**tfjob(), "metadata": {}},
    *(
        {**tfjob(), "metadata": {"name": "a", **more}}
        for more in (
            {"labels": "x"},
            {"annotations": {"a": 1, "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            {"ownerReferences": [{"uid": "x"}], "uid": "x", "resourceVersion": "1", "generation": 1},
            {"creationTimestamp": "x", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 1},
            {"managedFields": [{"manager": "kubectl"}], "selfLink": "x"},
        )
    ),
    {**tfjob(), "metadata": {"generateName": "7", "name": ""}},
    tfjob({"Master": {}, "Worker": {}}),
    tfjob(enableDynamicWorker="x"),
    tfjob({"PS": {}}, enableDynamicWorker=True),
    tfjob({"PS": {"replicas": 513}, "Worker": {}}, enableDynamicWorker=True),
    tfjob(runPolicy="x"),
    tfjob(runPolicy={"suspend": "x", "managedBy": "x", "schedulingPolicy": "x"}),
    tfjob(runPolicy={"schedulingPolicy": {"minimum": 1, "minAvailable": 99}}),
    tfjob(runPolicy={"managedBy": "kubeflow.org/training-operator"}),
    *(tfjob(**{key: 1}, runPolicy={key: 2}) for key in ("backoffLimit", *_SECONDS)),
    tfjob(cleanPodPolicy="All", runPolicy={"cleanPodPolicy": "None"}),
    tfjob(backoffLimit="x", activeDeadlineSeconds="x", ttlSecondsAfterFinished="x", cleanPodPolicy="x"),
    tfjob(backoffLimit=1, activeDeadlineSeconds=1, ttlSecondsAfterFinished=1, cleanPodPolicy=""),
    {**tfjob(cleanPodPolicy="All"), "apiVersion": "kubeflow.org/v1beta2"},
    tfjob({"Worker": {"replicas": 1001}}),
    {**tfjob(), "spec": {"tfReplicaSpecs": "x"}},
    tfjob({"Worker": {"template": None}}),
    with_template(more=1, metadata={"namespace": "x", "generateName": "x", "finalizers": ["x"], "other": 1}),
    with_template(metadata={"annotations": {"tfcluster.dev/x": "y"}}),
    with_template(metadata={"labels": {"scheduling.x-k8s.io/pod-group": "mnist"}}),
    with_template(metadata="x"),
    with_template(spec={"restartPolicy": "Never", "ephemeralContainers": [{"name": "x"}]}),
    with_template(spec={"containers": _CONTAINERS}),
    with_template(spec={"containers": _OURS, "initContainers": _OURS}),
    with_template(spec={"containers": [{}], "initContainers": [{}]}),
]


@pytest.mark.parametrize(
    ("least", "first", "outcome"),
    [
        (None, None, None),
        (4, None, "noted"),
        (3, 2, "noted"),
        (1, 0, "noted"),
        (0, None, "lossy"),
        ("3", None, "lossy"),
    ],
)
def test_tasks_start_together_where_tfjob_starts_them_so(least, first, outcome):
    """A chief and three workers."""
    policy = {"queue": "q", "minResources": {"cpu": 1}, "priorityClass": "p", "scheduleTimeoutSeconds": 9}
    policy |= {} if least is None else {"minAvailable": least}
    replicas = {"Chief": {}, "Worker": {"replicas": 3}}
    conversion = convert(tfjob(replicas, runPolicy={"schedulingPolicy": policy}))
    spec = conversion.cluster["spec"]
    assert spec["scheduling"] == {"gang": {}}
    assert spec["jobs"]["worker"].get("minReplicas") == first
    told = {one.path[-1]: one.outcome.value for one in conversion.verdicts if "schedulingPolicy" in one.path}
    expected = {
        "queue": "lossy",
        "priorityClass": "lossy",
        "scheduleTimeoutSeconds": "lossy",
        "minResources": "left out",
    }
    assert told == {**expected, **({"minAvailable": outcome} if outcome else {})}


def test_labels_and_services_of_tfjob_are_named():
    """What finds pods by TFJob's labels or Services finds nothing any more, and is told what to write."""
    selector = {"matchExpressions": [{"key": "training.kubeflow.org/replica-type", "operator": "Exists"}]}
    spread = {"labelSelector": selector, "matchLabelKeys": ["job-name"]}
    field = {"fieldRef": {"fieldPath": "metadata.labels['tf-replica-index']"}}
    own = {"fieldRef": {"fieldPath": "metadata.labels['replica_index']"}}
    env = [{"name": "INDEX", "valueFrom": field}, {"name": "OWN", "valueFrom": own}]
    args = ["--ps=mnist-ps-0.default:2222", "mnist-psx-0", "kubectl get pods -l training.kubeflow.org/job-name=x"]
    spec = {"topologySpreadConstraints": [spread], "containers": [{**MAIN, "args": args, "env": env}]}
    manifest = tfjob({"PS": {}, "Worker": {"template": {"spec": spec}}})
    lost = {spelled(one.path[5:]): one.words for one in convert(manifest).of(Outcome.LOSSY)}
    for path, words in {
        "topologySpreadConstraints[0].labelSelector.matchExpressions[0].key": "tfcluster.dev/job",
        "topologySpreadConstraints[0].matchLabelKeys[0]": "tfcluster.dev/cluster",
        "containers[0].args[0]": "mnist-ps-0.mnist.default here",
        "containers[0].args[2]": "use tfcluster.dev/cluster",
        "containers[0].env[0].valueFrom.fieldRef.fieldPath": "use tfcluster.dev/task-index",
    }.items():
        assert words in lost[path]
    assert not {"containers[0].args[1]", "containers[0].env[1].valueFrom.fieldRef.fieldPath"} & lost.keys()


def test_own_tf_config_gives_way_as_with_tfjob():
    """A TF_CONFIG in the template is hidden by the operator's, but stays where TFJob sets none."""
    env = [{"name": "A", "value": "1"}, {"name": "TF_CONFIG", "value": "{}"}, {"name": "B", "value": "2"}]

    def names(replicas: int) -> list[str]:
        job = spec_of(workers({"containers": [{**MAIN, "env": env}]}, replicas=replicas))["jobs"]["worker"]
        return [one["name"] for one in job["template"]["spec"]["containers"][0]["env"]]

    assert (names(2), names(1)) == (["A", "B"], ["A", "TF_CONFIG", "B"])


def test_what_an_alias_repeats_elsewhere_stays():
    env, labels = [{"name": "TF_CONFIG", "value": "{}"}], {"app.kubernetes.io/name": "x", "app": "y"}
    init, main = {"name": "init", "image": "i", "env": env}, {**MAIN, "env": env}
    where = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**where, "labelSelector": {"matchLabels": labels}}]
    spec = {"containers": [main], "initContainers": [init], "topologySpreadConstraints": spread}
    job = spec_of(workers(spec, metadata={"labels": labels}, replicas=2))["jobs"]["worker"]["template"]
    assert (job["metadata"]["labels"], job["spec"]["topologySpreadConstraints"]) == ({"app": "y"}, spread)
    assert ("env" in job["spec"]["containers"][0], job["spec"]["initContainers"][0]["env"]) == (False, env)


def test_the_manifest_itself_is_not_changed():
    manifest = yaml.safe_load(TFJOBS["what the operator sets"])
    convert(manifest)
    assert manifest == yaml.safe_load(TFJOBS["what the operator sets"])


@pytest.mark.parametrize("name", [*REFUSED])
def test_unconvertible_tfjob_is_rejected(name: str):
    text, expected = REFUSED[name]
    (conversion,) = convert_text(text.encode(), "f").conversions
    assert conversion.cluster is None
    refused = conversion.of(Outcome.REJECTED)
    assert expected in "; ".join(one.words for one in refused)
    if name == "an older version":  # nothing else is known of it
        assert [spelled(one.path) for one in refused] == ["apiVersion"]
