"""Admission on a real API server: the lifecycle fields; each rule has an invalid manifest and a similar valid one."""

from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.client.exceptions import ApiException
from support.admission import accepted, message_of, refusal, refused, taken
from support.manifests import TFClusterBuilder, pod_template, tfcluster
from support.objects import TFCLUSTERS, Object, Objects

OURS = "tfcluster.dev/tfcluster-operator"
WORKER = "spec.jobs.worker"
MOST = 2**31 - 1
NUMBER_OR_SHARE = 'write a number of tasks from 1 to 10000, or a percentage from "1%" to "100%"'
#: The restart policies of a job, and of its pods.
FOR_PODS = {"OnFailure": "OnFailure", "Always": "Always", "Never": "Never", "ExitCode": "Never"}


def worker(**fields: Any) -> TFClusterBuilder:
    return tfcluster("mnist").job("worker", **fields)


def rolling(most: Any, **strategy: Any) -> TFClusterBuilder:
    """Build a cluster with this maxUnavailable, updated with RollingUpdate unless its strategy says otherwise."""
    return worker().spec(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}, **strategy}
    )


def training(**spec: Any) -> TFClusterBuilder:
    return tfcluster("mnist").job("chief").job("worker").job("ps").spec(**spec)


def ordered(order: dict[str, list[str]]) -> TFClusterBuilder:
    builder = tfcluster("mnist")
    for job, before in order.items():
        builder.job(job, startAfter=before)
    return builder


def chain(length: int) -> dict[str, list[str]]:
    return {f"job{number}": [f"job{number - 1}"] if number else [] for number in range(length)}


def circle(length: int) -> dict[str, list[str]]:
    return {**chain(length), "job0": [f"job{length - 1}"]}


ALL_SET = training(
    suspend=True,
    successPolicy={"jobs": ["chief", "worker"], "tasks": "Any"},
    backoffLimit=3,
    activeDeadlineSeconds=3600,
    cleanPodPolicy="None",
    ttlSecondsAfterFinished=60,
    updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
    forceDeleteAfterSeconds=30,
    failedPodsHistoryLimit=3,
    managedBy=OURS,
    resolver={"delivery": "None", "tfConfig": "Environment"},
).job(
    "worker",
    restartPolicy="ExitCode",
    restartScope="Cluster",
    startAfter=["ps"],
    drainTimeoutSeconds=60,
    disruptionBudget={"minAvailable": "50%"},
)


def of_pods(policy: str | None, of_pod: str) -> TFClusterBuilder:
    """Build a job with one restartPolicy, if any, whose template has another."""
    fields = {"restartPolicy": policy} if policy else {}
    return worker(template=pod_template(spec={"restartPolicy": of_pod}), **fields)


#: Valid values of fields of the spec, and of a job.
GOOD_OF_THE_SPEC: dict[str, tuple[Any, ...]] = {
    "cleanPodPolicy": ("Running", "All", "None"),
    "updateStrategy": tuple({"type": value} for value in ("Recreate", "RollingUpdate", "OnDelete")),
    "resolver": tuple({"delivery": value} for value in ("ConfigMap", "None")),
    "backoffLimit": (0, MOST),
    "activeDeadlineSeconds": (1, MOST),
    "ttlSecondsAfterFinished": (0, MOST),
    "forceDeleteAfterSeconds": (0, MOST),
    "failedPodsHistoryLimit": (0, 10),
    "managedBy": (OURS, "kueue.x-k8s.io/multikueue", "example.com/queues/Gold_1.b-2", f"example.com/{'m' * 241}"),
    "successPolicy": ({"tasks": "Any"},),
}
GOOD_OF_A_JOB: dict[str, tuple[Any, ...]] = {
    "disruptionBudget": tuple({"minAvailable": value} for value in (1, 10_000, "1%", "100%")),
    "drainTimeoutSeconds": (0, 86_400),
    "restartPolicy": ("Always",),  # it never succeeds, and successPolicy does not require success
    "startAfter": ([],),
}
ORDERS_THAT_START: dict[str, dict[str, list[str]]] = {
    "two jobs that start after one": {"ps": [], "chief": ["ps"], "worker": ["ps"]},
    "one after two, one of them after the other": {"ps": [], "worker": ["ps"], "chief": ["ps", "worker"]},
    "a chain of 16 jobs": chain(16),
    "16 jobs, each after all before": {f"job{n}": [f"job{before}" for before in range(n)] for n in range(16)},
}
EVALUATED = training(successPolicy={"jobs": ["evaluator"]}).job("evaluator")
GOOD = [
    accepted("every field of a cluster's life at once", ALL_SET),
    *(accepted(f"{n} {one}", worker().spec(**{n: one})) for n, values in GOOD_OF_THE_SPEC.items() for one in values),
    *(accepted(f"{n} {one}", worker(**{n: one})) for n, values in GOOD_OF_A_JOB.items() for one in values),
    *(accepted(f"maxUnavailable {value}", rolling(value)) for value in (1, 10_000, "1%", "9%", "25%", "99%", "100%")),
    accepted("a rolling update at its own pace", rolling(None, rollingUpdate={})),
    accepted("success of the evaluator, if it is named", EVALUATED),
    accepted(
        "success of one job beside another whose restartPolicy is Always",
        training(successPolicy={"jobs": ["chief", "worker"]}).job("ps", restartPolicy="Always"),
    ),
    *(
        accepted(f"restartPolicy {policy} and, in the template, {of_pod}", of_pods(policy, of_pod))
        for policy, of_pod in {**FOR_PODS, None: "OnFailure"}.items()
    ),
    *(
        accepted(f"restartScope {scope} under restartPolicy {policy}", worker(restartPolicy=policy, restartScope=scope))
        for policy in ("OnFailure", "Always", "ExitCode")
        for scope in ("Task", "Job", "Cluster")
    ),
    accepted("a task server", worker(taskServer=True)),
    accepted("a command without a task server", worker(taskServer=False, template=pod_template(command=["train"]))),
    accepted("restartScope Task under restartPolicy Never", worker(restartPolicy="Never", restartScope="Task")),
    accepted("a job that starts after one without tasks", worker(startAfter=["ps"]).job("ps", replicas=0)),
    *(accepted(fact, ordered(order)) for fact, order in ORDERS_THAT_START.items()),
]


@pytest.mark.parametrize("manifest", GOOD)
def test_life_that_makes_sense_is_accepted(objects: Objects, manifest: Object) -> None:
    stored = taken(objects, manifest)
    assert said(stored["spec"], manifest["spec"]) == manifest["spec"]


def said(stored: Any, written: Any) -> Any:
    """Return the stored object without the server's defaults."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return {key: said(value, written[key]) for key, value in stored.items() if key in written}
    return stored


def wrong(path: str, value: Any, manifest: TFClusterBuilder, remedy: str) -> Any:
    return refused(f"{path}: {value!r}", manifest, path, remedy)


DOMAIN_AND_NAME = "write a domain and a name, such as example.com/queue, or leave the field out"
NO_MANAGERS = ("", "queue", "/queue", "example.com/", "Example.com/queue", "example.com/a b", "-a/b", "a/b/")
MAX_UNAVAILABLE = [
    *((value, NUMBER_OR_SHARE) for value in (0, -1, 10_001, "0%", "00%", "101%", "25", "%", "x%", "2.5%", "")),
    ("+100%", "may not be more than 4"),
    (2.5, "must be of type integer,string"),
    (True, "must be of type integer,string"),
]
MIN_AVAILABLE = [
    *((value, NUMBER_OR_SHARE) for value in (0, -1, 10_001, "0%", "101%", "25", "")),
    (2.5, "must be of type integer,string"),
]
ROLLING_UPDATE = "spec.updateStrategy.rollingUpdate"
TWICE = training(successPolicy={"jobs": ["worker", "worker"]})
VALUES = [
    *(wrong("spec.managedBy", one, worker().spec(managedBy=one), DOMAIN_AND_NAME) for one in NO_MANAGERS),
    *(
        wrong("spec.updateStrategy.rollingUpdate.maxUnavailable", one, rolling(one), say)
        for one, say in MAX_UNAVAILABLE
    ),
    *(
        wrong(
            f"{WORKER}.disruptionBudget.minAvailable", value, worker(disruptionBudget={"minAvailable": value}), remedy
        )
        for value, remedy in MIN_AVAILABLE
    ),
    wrong("spec.successPolicy.jobs[1]", "the second worker", TWICE, "Duplicate value"),
    wrong(f"{WORKER}.startAfter[1]", "the second ps", worker(startAfter=["ps", "ps"]).job("ps"), "Duplicate value"),
]


def senseless(manifest: TFClusterBuilder, path: str, remedy: str) -> Any:
    return refused(f"{path}: {remedy}", manifest, path, remedy)


SET_THE_JOBS = "remove it here, or set the one of the job, beside template"
NOT_DECLARED = '"master" is not a job that is declared: correct the name, or declare the job under spec.jobs'
START_AFTER = "spec.jobs.worker.startAfter"
SENSELESS = [
    senseless(training(successPolicy={"jobs": ["worker", "master"]}), "spec.successPolicy.jobs", NOT_DECLARED),
    senseless(
        training(successPolicy={"jobs": ["worker", "ps"]}).job("ps", restartPolicy="Always"),
        "spec.successPolicy.jobs",
        '"ps" never succeeds, because its tasks always restart: remove it, or set another',
    ),
    *(
        senseless(
            rolling(1, type=type_),
            ROLLING_UPDATE,
            f"is only for type RollingUpdate, and type is {type_}: remove it, or set type RollingUpdate",
        )
        for type_ in ("Recreate", "OnDelete")
    ),
    senseless(
        worker().spec(updateStrategy={"rollingUpdate": {}}),
        ROLLING_UPDATE,
        "is only for type RollingUpdate, and type is OnDelete",
    ),
    *(
        senseless(
            worker(taskServer=True, template=template), f"{WORKER}.taskServer", "has a command or args of its own"
        )
        for template in (
            pod_template(command=["train"]),
            pod_template(args=["--steps=3"]),
            {"spec": {"containers": [{"name": one, "image": "i", "command": [one]} for one in ("main", "log")]}},
        )
    ),
    senseless(worker(minReplicas=1), "spec.jobs", "needs spec.scheduling.gang"),
    *(
        senseless(
            worker(restartPolicy="Never", restartScope=scope),
            f"{WORKER}.restartScope",
            f"is {scope}, but under restartPolicy Never nothing starts again: remove it, or set another restartPolicy",
        )
        for scope in ("Job", "Cluster")
    ),
    *(
        senseless(
            of_pods(policy, of_pod),
            f"{WORKER}.template.spec.restartPolicy",
            f"is {of_pod}, but restartPolicy of the job, which decides, is {policy or 'OnFailure'}: {SET_THE_JOBS}",
        )
        for policy, needed in {**FOR_PODS, None: "OnFailure"}.items()
        for of_pod in ("OnFailure", "Always", "Never")
        if of_pod != needed
    ),
    senseless(ordered({"ps": [], "worker": ["ps", "master"]}), START_AFTER, NOT_DECLARED),
    senseless(
        ordered({"ps": [], "worker": ["ps", "worker"]}),
        START_AFTER,
        '"worker" is the job itself, which would wait for its own tasks and never start: remove it',
    ),
    *(
        refused(
            f"a circle of {length} jobs",
            ordered(circle(length)),
            "spec.jobs.job0.startAfter",
            "name each other in a circle, so that none of these jobs would ever start: remove one of the names",
        )
        for length in range(2, 17)
    ),
]


@pytest.mark.parametrize(("manifest", "path", "remedy"), [*VALUES, *SENSELESS])
def test_invalid_lifecycle_fields_are_rejected(objects: Objects, manifest: Object, path: str, remedy: str) -> None:
    message = refusal(objects, manifest)
    assert path in message
    assert remedy in message


@pytest.mark.parametrize("manifest", [row.values[0] for row in SENSELESS], ids=[row.id for row in SENSELESS])
def test_one_wrong_thing_has_one_complaint(objects: Objects, manifest: Object) -> None:
    message = refusal(objects, manifest)
    assert message.count("Invalid value") == 1
    assert "is invalid: [" not in message


def test_only_the_jobs_of_a_circle_are_named(objects: Objects) -> None:
    order = {"first": [], "a": ["first", "c"], "b": ["a"], "c": ["b"], "after": ["c"], "last": ["after"]}
    message = refusal(objects, ordered(order).build())
    assert [job for job in order if f"spec.jobs.{job}.startAfter" in message] == ["a", "b", "c"]


JOBS = [f"job{number}" for number in range(16)]
ORDERS = st.integers(min_value=2, max_value=16).flatmap(
    lambda size: st.dictionaries(
        st.sampled_from(JOBS[:size]), st.lists(st.sampled_from(JOBS[:size]), unique=True, max_size=3), max_size=size
    )
)


@pytest.mark.parametrize("orders", [60, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_start_orders_are_rejected_only_if_cyclic(objects: Objects, orders: int) -> None:
    @given(order=ORDERS)
    @settings(max_examples=orders, deadline=None)
    def judged(order: dict[str, list[str]]) -> None:
        declared = {job: [before for before in order.get(job, []) if before != job] for job in JOBS}
        try:
            tuple(TopologicalSorter(declared).static_order())
        except CycleError:
            assert "name each other in a circle" in refusal(objects, ordered(declared).build())
        else:
            taken(objects, ordered(declared).build())

    judged()


def test_defaults_within_what_is_said(objects: Objects) -> None:
    manifest = worker().spec(successPolicy={"jobs": ["worker"]}, updateStrategy={}, resolver={}).build()
    at_its_pace = {"type": "RollingUpdate", "rollingUpdate": {}}
    spec = taken(objects, manifest)["spec"]
    pace = taken(objects, worker().spec(updateStrategy=at_its_pace).build())["spec"]["updateStrategy"]
    assert spec["successPolicy"] == {"jobs": ["worker"], "tasks": "All"}
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["resolver"] == {"tfConfig": "None"}
    assert pace == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, OURS, id="added"),
        pytest.param(OURS, None, id="removed"),
        pytest.param(OURS, "example.com/other", id="given to another"),
        pytest.param("example.com/other", OURS, id="taken from another"),
    ],
)
def test_manager_cannot_be_changed(objects: Objects, namespace: str, before: str | None, after: str | None) -> None:
    builder = worker() if before is None else worker().spec(managedBy=before)
    objects.create(TFCLUSTERS, namespace, builder.build())
    with pytest.raises(ApiException) as caught:
        objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"managedBy": after}})
    message = message_of(caught.value)
    assert "spec.managedBy: Forbidden" in message
    assert "leave it as it was created, or delete the TFCluster and create it again" in message
    assert (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"].get("managedBy") == before


@pytest.mark.parametrize("manager", [None, OURS, "example.com/other"])
def test_other_edits_leave_the_manager_alone(objects: Objects, namespace: str, manager: str | None) -> None:
    builder = worker() if manager is None else worker().spec(managedBy=manager)
    objects.create(TFCLUSTERS, namespace, builder.build())
    objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"suspend": True, "backoffLimit": 3}})
    objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"replicas": 2}}, subresource="scale")
    spec = (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]
    assert (spec["suspend"], spec["backoffLimit"], spec["jobs"]["worker"]["replicas"]) == (True, 3, 2)
    assert spec.get("managedBy") == manager
