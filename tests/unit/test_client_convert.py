"""What becomes of a TFJob: each value is carried over, written out, or named."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from support.tfjobs import REFUSED, TFJOBS

from tfcluster.convert.conversion import Conversion, convert
from tfcluster.convert.documents import convert_text
from tfcluster.convert.fields import FIELDS, field_of
from tfcluster.convert.verdicts import Outcome, leaves, spelled


def tfjob(replicas: dict[str, Any] | None = None, *, name: str = "mnist", **spec: Any) -> dict[str, Any]:
    """Make a TFJob; what is said of a type comes beside a template."""
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["run"]}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "tfReplicaSpecs": {
                key: None if more is None else {"template": template, **more}
                for key, more in (replicas or {"Worker": {}}).items()
            },
            **spec,
        },
    }


def spec_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Convert, and give the spec that came out."""
    conversion = convert(manifest)
    assert conversion.cluster is not None, [str(one) for one in conversion.of(Outcome.REFUSED)]
    return conversion.cluster["spec"]


def words(manifest: dict[str, Any], outcome: Outcome, path: str) -> str:
    """Give what is said of one field with one outcome."""
    return "; ".join(one.words for one in convert(manifest).of(outcome) if spelled(one.path) == path)


# --- who decides, and what ends


def test_defaults_that_differ_are_written_out():
    """TFJob's Never and None, and that no edit touches running pods, are in the manifest."""
    spec = spec_of(tfjob({"Worker": {"replicas": 1}}))

    assert spec["jobs"]["worker"]["restartPolicy"] == "Never"
    assert (spec["cleanPodPolicy"], spec["updateStrategy"]) == ("None", {"type": "OnDelete"})
    assert "backoffLimit" not in spec


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1", "v1alpha2"])
def test_older_versions_clean_up_running_pods(version: str):
    """Before v1 the default of cleanPodPolicy was Running."""
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
    """The chief or master decides, else all workers; that worker 0 alone decided is named as lost."""
    conversion = convert(tfjob(replicas, **({} if policy is None else {"successPolicy": policy})))

    assert conversion.cluster is not None
    found = conversion.cluster["spec"].get("successPolicy")
    assert found == (None if expected is None else {"jobs": expected, "tasks": "All"})
    about = [one.outcome for one in conversion.verdicts if one.path == ("spec", "successPolicy")]
    assert (outcome in about) if outcome else about == []


def test_run_policy_is_carried_over_from_both_places():
    """The fields of runPolicy stand in spec; in old manifests they stood there before, and runPolicy wins."""
    fields = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": 1,
        "ttlSecondsAfterFinished": 0,
        "cleanPodPolicy": "All",
        "suspend": True,
    }
    older = {key: value for key, value in fields.items() if key != "suspend"}

    assert spec_of(tfjob(runPolicy=fields)).items() >= fields.items()
    assert spec_of(tfjob(**older)).items() >= older.items()
    both = tfjob(runPolicy={"backoffLimit": 5}, backoffLimit=7)
    assert spec_of(both)["backoffLimit"] == 5
    assert "runPolicy.backoffLimit decides" in words(both, Outcome.LEFT_OUT, "spec.backoffLimit")


def test_who_manages_it():
    """TFJob's own operator means ours, MultiKueue stays and is named, nobody else is taken."""
    ours = tfjob(runPolicy={"managedBy": "kubeflow.org/training-operator"})
    kueue = tfjob(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})

    assert "managedBy" not in spec_of(ours)
    assert spec_of(kueue)["managedBy"] == "kueue.x-k8s.io/multikueue"
    assert "nothing runs" in words(kueue, Outcome.LOSSY, "spec.runPolicy.managedBy")
    assert convert(tfjob(runPolicy={"managedBy": "example.com/me"})).cluster is None


# --- the roles


@pytest.mark.parametrize(("key", "job"), [("WORKER", "worker"), ("Ps", "ps"), ("eValuator", "evaluator")])
def test_types_in_any_case(key: str, job: str):
    """TFJob takes the types in any case, and so does the conversion."""
    assert list(spec_of(tfjob({key: {}, "chief": {}}))["jobs"]) == [job, "chief"]


def test_dynamic_workers_become_device_filters():
    """A worker sees itself and the ps, a ps itself; the other roles see all; a failed worker is restarted."""
    replicas = {"Chief": {}, "PS": {"replicas": 2}, "Worker": {"replicas": 3}, "Evaluator": {}}
    manifest = tfjob(replicas, enableDynamicWorker=True)
    jobs = spec_of(manifest)["jobs"]

    assert jobs["worker"]["deviceFilters"] == ["/job:ps"]
    assert jobs["ps"]["taskDeviceFilters"] == {"0": ["/job:ps/task:0"], "1": ["/job:ps/task:1"]}
    assert not {"deviceFilters", "taskDeviceFilters"} & (jobs["chief"].keys() | jobs["evaluator"].keys())
    assert jobs["worker"]["restartPolicy"] == "OnFailure"
    assert "goes on" in words(manifest, Outcome.LOSSY, "spec.tfReplicaSpecs.Worker.restartPolicy")
    alone = spec_of(tfjob({"Worker": {"replicas": 2}}, enableDynamicWorker=True))["jobs"]["worker"]
    assert alone["taskDeviceFilters"] == {"0": ["/job:worker/task:0"], "1": ["/job:worker/task:1"]}
    many = tfjob({"PS": {"replicas": 513}, "Worker": {}}, enableDynamicWorker=True)
    assert spec_of(many)["jobs"]["ps"]["deviceFilters"] == ["/job:ps"]
    assert "513" not in words(many, Outcome.LOSSY, "spec.enableDynamicWorker") != ""


def test_tf_config_is_set_where_tfjob_sets_it():
    """Several replicas get TF_CONFIG, one gets none; nobody's image is overruled by PYTHONPATH or the task server."""
    assert spec_of(tfjob({"Worker": {"replicas": 2}}))["resolver"] == {"tfConfig": "Environment"}
    assert spec_of(tfjob())["resolver"] == {"delivery": "None"}
    many = tfjob({"Worker": {"replicas": 1001}})
    assert "resolver" not in spec_of(many)
    assert "tfcluster_resolver exec" in words(many, Outcome.LOSSY, "spec.tfReplicaSpecs")


def test_quantities_with_a_point_are_texts():
    """The definition takes whole numbers and texts alone; the API server would refuse the rest."""
    container = {"name": "tensorflow", "image": "i", "resources": {"limits": {"cpu": 0.5, "memory": 1.0, "a.b/gpu": 1}}}
    volume = {"name": "v", "emptyDir": {"sizeLimit": 1e9}}
    spec = {"containers": [container], "volumes": [volume], "overhead": {"cpu": 0.25}}

    kept = spec_of(tfjob({"Worker": {"template": {"spec": spec}}}))["jobs"]["worker"]["template"]["spec"]
    assert kept["containers"][0]["resources"]["limits"] == {"cpu": "0.5", "memory": "1", "a.b/gpu": 1}
    assert (kept["volumes"][0]["emptyDir"], kept["overhead"]) == ({"sizeLimit": "1000000000"}, {"cpu": "0.25"})


@pytest.mark.parametrize(("policy", "outcomes"), [("OnFailure", {0: "lossy", 1: "lossy", 3: "noted"}), ("Never", {})])
def test_folders_that_a_restart_changes_are_named(policy: str, outcomes: dict[int, str]):
    """A restarted task gets a new pod: volumes of a pod are empty then, and a hostPath is another node's."""
    volumes = [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "emptyDir": {"medium": "Memory"}},
        {"name": "d", "hostPath": {"path": "/data"}},
    ]
    spec = {"containers": [{"name": "tensorflow", "image": "i"}], "volumes": volumes}
    verdicts = convert(tfjob({"Worker": {"restartPolicy": policy, "template": {"spec": spec}}})).verdicts

    found = {one.path[6]: one.outcome for one in verdicts if one.path[5:6] == ("volumes",)}
    assert found == outcomes


@pytest.mark.parametrize(
    ("annotations", "scheduler", "lost"),
    [
        ({"scheduling.k8s.io/group-name": "mnist"}, None, True),
        ({"scheduling.k8s.io/group-name": "mine"}, None, False),
        ({}, "volcano", True),
        ({}, "yunikorn", False),
        (["scheduling.k8s.io/group-name"], [], False),
    ],
)
def test_a_pod_group_that_tfjobs_operator_makes_is_lost(annotations, scheduler, lost):
    """By its name or by its scheduler; one of the user's own, and a scheduler without any, are carried over."""
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "tensorflow", "image": "i"}]},
    }
    told = [one for one in convert(tfjob({"Worker": {"template": template}})).verdicts if "PodGroup" in one.words]
    assert [one.outcome for one in told] == [Outcome.LOSSY] * lost


def test_ports_are_found_by_their_name():
    """The port tfjob-port of the container tensorflow is the job's, or the cluster's where all have the same."""

    def template(port: int) -> dict[str, Any]:
        ports = [{"name": "other", "containerPort": 1}, {"name": "tfjob-port", "containerPort": port}]
        container = {"name": "tensorflow", "image": "i", "ports": ports}
        side = {"name": "side", "image": "i", "ports": [{"name": "tfjob-port", "containerPort": 9}]}
        return {"template": {"spec": {"containers": [side, container]}}}

    same = spec_of(tfjob({"Chief": template(5000), "Worker": template(5000)}))
    assert (same["port"], [job.get("port") for job in same["jobs"].values()]) == (5000, [None, None])
    mixed = spec_of(tfjob({"Chief": template(5000), "Worker": {}}))
    assert (mixed.get("port"), mixed["jobs"]["chief"]["port"], mixed["jobs"]["worker"].get("port")) == (
        None,
        5000,
        None,
    )


# --- what is not carried over is named


@pytest.mark.parametrize("name", [*TFJOBS])
def test_nothing_is_dropped_in_silence(name: str):
    """Each value of each manifest is in the result, or has a verdict that says what became of it."""
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
    text = TFJOBS[name].text.replace("\t", " ")
    documents = yaml.safe_load(text)
    found = documents["items"] if documents["kind"] == "List" else [documents]
    return [(convert(one), one) for one in found if one["kind"] == "TFJob"]


@pytest.mark.parametrize("name", [*TFJOBS, *REFUSED])
def test_every_verdict_is_in_the_field_map(name: str):
    """The map of the documentation knows each field that gets a verdict, and that it may get it."""
    text = TFJOBS[name].text if name in TFJOBS else REFUSED[name][0]

    for conversion in convert_text(text, "f").conversions:
        for verdict in conversion.verdicts:
            field = field_of(verdict)
            if not verdict.path and verdict.outcome in (Outcome.REFUSED, Outcome.NOTED) and field is None:
                continue  # what the API server would say of the result
            assert field is not None, str(verdict)
            assert verdict.outcome in field.outcomes, str(verdict)


def test_field_map_promises_nothing_that_never_happens():
    """Each verdict that the map lists for a field is given to some manifest."""
    texts = [one.text for one in TFJOBS.values()] + [text for text, _ in REFUSED.values()]
    verdicts = [v for text in texts for c in convert_text(text, "f").conversions for v in c.verdicts]
    verdicts += [v for manifest in ODD for v in convert(manifest).verdicts]
    given = {(field, verdict.outcome) for verdict in verdicts if (field := field_of(verdict)) is not None}

    promised = {(field, outcome) for field in FIELDS for outcome in field.outcomes}
    missing = sorted(f"{field.path or field.becomes}: {outcome}" for field, outcome in promised - given)
    assert missing == []


def with_template(**more: Any) -> dict[str, Any]:
    """Make a TFJob with two workers of a template."""
    container = {"name": "tensorflow", "image": "i", "command": ["run"]}
    spec = {"containers": [container], **more.pop("spec", {})}
    return tfjob({"Chief": {"template": {"spec": spec, **more}}})


_CONTAINERS = [{"name": "first", "image": "i"}]
_BARE = [{"volumeMounts": [{"mountPath": "/etc/tfcluster/x"}], "env": [{"name": "TFCLUSTER_JOB"}]}]
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
    tfjob(enableDynamicWorker="x"),
    tfjob({"PS": {}}, enableDynamicWorker=True),
    tfjob({"PS": {"replicas": 513}, "Worker": {}}, enableDynamicWorker=True),
    tfjob(runPolicy="x"),
    tfjob(runPolicy={"suspend": "x", "managedBy": "x", "schedulingPolicy": "x"}),
    tfjob(runPolicy={"schedulingPolicy": {"minimum": 1}}),
    tfjob(runPolicy={"managedBy": "kubeflow.org/training-operator"}),
    *(
        tfjob(**{key: value}, runPolicy={key: other})
        for key, value, other in (
            ("backoffLimit", 1, 2),
            ("activeDeadlineSeconds", 1, 2),
            ("ttlSecondsAfterFinished", 1, 2),
            ("cleanPodPolicy", "All", "None"),
        )
    ),
    tfjob(backoffLimit="x", activeDeadlineSeconds="x", ttlSecondsAfterFinished="x", cleanPodPolicy="x"),
    tfjob(backoffLimit=1, activeDeadlineSeconds=1, ttlSecondsAfterFinished=1, cleanPodPolicy=""),
    {**tfjob(cleanPodPolicy="All"), "apiVersion": "kubeflow.org/v1beta2"},
    tfjob({"Worker": {"replicas": 1001}}),
    {**tfjob(), "spec": {"tfReplicaSpecs": "x"}},
    tfjob({"Worker": {"template": None}}),
    with_template(more=1, metadata={"namespace": "x", "generateName": "x", "finalizers": ["x"], "other": 1}),
    with_template(metadata={"annotations": {"tfcluster.dev/x": "y"}}),
    with_template(metadata="x"),
    with_template(spec={"restartPolicy": "Never", "ephemeralContainers": [{"name": "x"}]}),
    with_template(spec={"containers": _CONTAINERS}),
    with_template(spec={"containers": _BARE, "initContainers": _BARE}),
]


def test_gang_is_lost_leaf_by_leaf():
    """Each field of schedulingPolicy says what to do instead: with another scheduler a gang is of its making."""
    policy = {"minAvailable": 3, "queue": "q", "minResources": {"cpu": 1}, "priorityClass": "p"}
    conversion = convert(tfjob(runPolicy={"schedulingPolicy": {**policy, "scheduleTimeoutSeconds": 9}}))

    lost = {one.path[-1]: one.words for one in conversion.of(Outcome.LOSSY)}
    assert {*policy, "scheduleTimeoutSeconds"} <= lost.keys()
    words = {
        "minAvailable": "PodGroup",
        "queue": "PodGroup",
        "minResources": "PodGroup",
        "priorityClass": "spec.scheduling",
    }
    assert {key: one for key, one in words.items() if one not in lost[key]} == {}


def test_labels_and_services_of_tfjob_are_named():
    """What finds pods by TFJob's labels or Services finds nothing any more, and is told what to write."""
    selector = {"matchExpressions": [{"key": "training.kubeflow.org/replica-type", "operator": "Exists"}]}
    spread = {"labelSelector": selector, "matchLabelKeys": ["job-name"]}
    field = {"fieldRef": {"fieldPath": "metadata.labels['tf-replica-index']"}}
    own = {"fieldRef": {"fieldPath": "metadata.labels['replica_index']"}}
    env = [{"name": "INDEX", "valueFrom": field}, {"name": "OWN", "valueFrom": own}]
    args = ["--ps=mnist-ps-0.default:2222", "mnist-psx-0", "kubectl get pods -l training.kubeflow.org/job-name=x"]
    container = {"name": "tensorflow", "image": "i", "args": args, "env": env}
    spec = {"topologySpreadConstraints": [spread], "containers": [container]}
    manifest = tfjob({"PS": {}, "Worker": {"template": {"spec": spec}}})

    lost = {spelled(one.path[4:]): one.words for one in convert(manifest).of(Outcome.LOSSY)}
    assert "tfcluster.dev/job" in lost["spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].key"]
    assert "tfcluster.dev/cluster" in lost["spec.topologySpreadConstraints[0].matchLabelKeys[0]"]
    assert "mnist-ps-0.mnist.default here" in lost["spec.containers[0].args[0]"]
    assert "spec.containers[0].args[1]" not in lost
    assert "use tfcluster.dev/cluster" in lost["spec.containers[0].args[2]"]
    assert "spec.containers[0].env[1].valueFrom.fieldRef.fieldPath" not in lost, "a label of the user's own"
    assert "use tfcluster.dev/task-index" in lost["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"]


def test_own_tf_config_gives_way_as_with_tfjob():
    """A TF_CONFIG in the template is hidden by the operator's, but stays where TFJob sets none."""
    env = [{"name": "A", "value": "1"}, {"name": "TF_CONFIG", "value": "{}"}, {"name": "B", "value": "2"}]
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "env": env}]}}
    several = spec_of(tfjob({"Worker": {"replicas": 2, "template": template}}))
    single = spec_of(tfjob({"Worker": {"template": template}}))

    def names(spec: dict[str, Any]) -> list[str]:
        (container,) = spec["jobs"]["worker"]["template"]["spec"]["containers"]
        return [one["name"] for one in container["env"]]

    assert (names(several), names(single)) == (["A", "B"], ["A", "TF_CONFIG", "B"])


def test_what_an_alias_repeats_elsewhere_stays():
    """Variables and labels that are taken out at one place stay where the same list or map stands again."""
    env, labels = [{"name": "TF_CONFIG", "value": "{}"}], {"app.kubernetes.io/name": "x", "app": "y"}
    init, main = {"name": "init", "image": "i", "env": env}, {"name": "tensorflow", "image": "i", "env": env}
    spread = [{"labelSelector": {"matchLabels": labels}}]
    spec = {"containers": [main], "initContainers": [init], "topologySpreadConstraints": spread}
    template = spec_of(tfjob({"Worker": {"replicas": 2, "template": {"metadata": {"labels": labels}, "spec": spec}}}))[
        "jobs"
    ]["worker"]["template"]

    assert template["metadata"]["labels"] == {"app": "y"}
    assert template["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
    assert "env" not in template["spec"]["containers"][0]
    assert template["spec"]["initContainers"][0]["env"] == env


def test_the_manifest_itself_is_not_changed():
    """The conversion works on copies."""
    manifest = yaml.safe_load(TFJOBS["what the operator sets"].text)
    convert(manifest)

    assert manifest == yaml.safe_load(TFJOBS["what the operator sets"].text)


@pytest.mark.parametrize("name", [*REFUSED])
def test_what_cannot_be_is_refused(name: str):
    """There is no result, and the words say what to do."""
    text, expected = REFUSED[name]
    (conversion,) = convert_text(text, "f").conversions

    assert conversion.cluster is None
    assert expected in "; ".join(one.words for one in conversion.of(Outcome.REFUSED))


def test_of_an_unknown_version_nothing_else_is_said():
    """What another version means is not known, so that its version is all that is told."""
    (conversion,) = convert_text(REFUSED["an older version"][0], "f").conversions

    assert [spelled(one.path) for one in conversion.of(Outcome.REFUSED)] == ["apiVersion"]
