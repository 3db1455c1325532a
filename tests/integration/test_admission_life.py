"""Admission on a real API server: the fields of a cluster's life, and which of their combinations make no sense.

Each rule is met twice: by a manifest that breaks it, whose refusal must name the path and the remedy, and by the
nearest one that does not.
"""

from __future__ import annotations

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
#: What each restartPolicy of a job means for its pods.
FOR_PODS = {"OnFailure": "OnFailure", "Always": "Always", "Never": "Never", "ExitCode": "Never"}


def worker(**fields: Any) -> TFClusterBuilder:
    """A cluster of one job, worker."""
    return tfcluster("mnist").job("worker", **fields)


def rolling(most: Any, **strategy: Any) -> TFClusterBuilder:
    """A cluster with this maxUnavailable, updated by RollingUpdate unless the fields of its strategy say otherwise."""
    return worker().spec(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}, **strategy}
    )


def training(**spec: Any) -> TFClusterBuilder:
    """A cluster with a chief, a worker and a parameter server; the fields are the spec's."""
    return tfcluster("mnist").job("chief").job("worker").job("ps").spec(**spec)


def ordered(order: dict[str, list[str]]) -> TFClusterBuilder:
    """A cluster of these jobs, each after those of its list."""
    builder = tfcluster("mnist")
    for job, before in order.items():
        builder.job(job, startAfter=before)
    return builder


def chain(length: int) -> dict[str, list[str]]:
    """Jobs of which each starts after the one before."""
    return {f"job{number}": [f"job{number - 1}"] if number else [] for number in range(length)}


def circle(length: int) -> dict[str, list[str]]:
    """Jobs of which each starts after the one before, and the first after the last."""
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

GOOD = [
    accepted("every field of a cluster's life at once", ALL_SET),
    *(accepted(f"cleanPodPolicy {value}", worker().spec(cleanPodPolicy=value)) for value in ("Running", "All", "None")),
    *(
        accepted(f"updateStrategy {value}", worker().spec(updateStrategy={"type": value}))
        for value in ("Recreate", "RollingUpdate", "OnDelete")
    ),
    *(accepted(f"maxUnavailable {value}", rolling(value)) for value in (1, 10_000, "1%", "9%", "25%", "99%", "100%")),
    *(
        accepted(f"minAvailable {value}", worker(disruptionBudget={"minAvailable": value}))
        for value in (1, 10_000, "1%", "100%")
    ),
    accepted("a rolling update at its own pace", rolling(None, rollingUpdate={})),
    *(
        accepted(f"resolver.delivery {value}", worker().spec(resolver={"delivery": value}))
        for value in ("ConfigMap", "None")
    ),
    *(
        accepted(f"{field} {value}", worker().spec(**{field: value}))
        for field, least in {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 1,
            "ttlSecondsAfterFinished": 0,
            "forceDeleteAfterSeconds": 0,
        }.items()
        for value in (least, MOST)
    ),
    *(accepted(f"failedPodsHistoryLimit {value}", worker().spec(failedPodsHistoryLimit=value)) for value in (0, 10)),
    *(accepted(f"drainTimeoutSeconds {value}", worker(drainTimeoutSeconds=value)) for value in (0, 86_400)),
    accepted("success of any task of the default jobs", worker().spec(successPolicy={"tasks": "Any"})),
    accepted(
        "success of the evaluator, if it is named",
        training(successPolicy={"jobs": ["evaluator"]}).job("evaluator"),
    ),
    accepted(
        "success of one job beside another whose restartPolicy is Always",
        training(successPolicy={"jobs": ["chief", "worker"]}).job("ps", restartPolicy="Always"),
    ),
    accepted("a cluster that never succeeds, if no success is asked for", worker(restartPolicy="Always")),
    *(
        accepted(
            f"restartPolicy {policy} and, in the template, {of_pod}",
            worker(restartPolicy=policy, template=pod_template(spec={"restartPolicy": of_pod})),
        )
        for policy, of_pod in FOR_PODS.items()
    ),
    accepted(
        "restartPolicy OnFailure in a template is the default's",
        worker(template=pod_template(spec={"restartPolicy": "OnFailure"})),
    ),
    *(
        accepted(f"restartScope {scope} under restartPolicy {policy}", worker(restartPolicy=policy, restartScope=scope))
        for policy in ("OnFailure", "Always", "ExitCode")
        for scope in ("Task", "Job", "Cluster")
    ),
    accepted("restartScope Task under restartPolicy Never", worker(restartPolicy="Never", restartScope="Task")),
    accepted("a job that starts after nobody", worker(startAfter=[])),
    accepted("a job that starts after one without tasks", worker(startAfter=["ps"]).job("ps", replicas=0)),
    accepted("two jobs that start after one", ordered({"ps": [], "chief": ["ps"], "worker": ["ps"]})),
    accepted(
        "one job that starts after two, one of them after the other",
        ordered({"ps": [], "worker": ["ps"], "chief": ["ps", "worker"]}),
    ),
    accepted("a chain of 16 jobs", ordered(chain(16))),
    accepted(
        "16 jobs of which each starts after all before",
        ordered({f"job{number}": [f"job{before}" for before in range(number)] for number in range(16)}),
    ),
    accepted("a cluster that another controller manages", worker().spec(managedBy="kueue.x-k8s.io/multikueue")),
    accepted("a cluster that this operator manages by name", worker().spec(managedBy=OURS)),
    accepted("managedBy with a longer path", worker().spec(managedBy="example.com/queues/Gold_1.b-2")),
    accepted("managedBy of 253 characters", worker().spec(managedBy=f"example.com/{'m' * 241}")),
]


@pytest.mark.parametrize("manifest", GOOD)
def test_life_that_makes_sense_is_accepted(objects: Objects, manifest: Object) -> None:
    """A good manifest is taken, and what it says of the cluster's life is stored as it was written."""
    stored = taken(objects, manifest)

    assert said(stored["spec"], manifest["spec"]) == manifest["spec"]


def said(stored: Any, written: Any) -> Any:
    """Give what is stored without the defaults that the server added."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return {key: said(value, written[key]) for key, value in stored.items() if key in written}
    return stored


def wrong(path: str, value: Any, manifest: TFClusterBuilder, remedy: str) -> Any:
    """Make the row of a field with a value that it cannot have."""
    return refused(f"{path}: {value!r}", manifest, path, remedy)


VALUES = [
    *(
        wrong(f"spec.{field}", value, worker().spec(**{field: value}), remedy)
        for field, value, remedy in (
            ("backoffLimit", -1, "greater than or equal to 0"),
            ("backoffLimit", MOST + 1, "less than or equal to 2147483647"),
            ("activeDeadlineSeconds", 0, "greater than or equal to 1"),
            ("activeDeadlineSeconds", MOST + 1, "less than or equal to 2147483647"),
            ("activeDeadlineSeconds", "1h", "must be of type integer"),
            ("ttlSecondsAfterFinished", -1, "greater than or equal to 0"),
            ("ttlSecondsAfterFinished", MOST + 1, "less than or equal to 2147483647"),
            ("failedPodsHistoryLimit", -1, "greater than or equal to 0"),
            ("failedPodsHistoryLimit", 11, "less than or equal to 10"),
            ("forceDeleteAfterSeconds", -1, "greater than or equal to 0"),
            ("forceDeleteAfterSeconds", MOST + 1, "less than or equal to 2147483647"),
            ("cleanPodPolicy", "Never", 'supported values: "Running", "All", "None"'),
            ("managedBy", f"example.com/{'m' * 242}", "may not be more than 253"),
            *(
                ("managedBy", value, "write a domain and a name, such as example.com/queue, or leave the field out")
                for value in (
                    "",
                    "queue",
                    "/queue",
                    "example.com/",
                    "Example.com/queue",
                    "example.com/a b",
                    "-a/b",
                    "a/b/",
                )
            ),
            ("updateStrategy", "Recreate", "must be of type object"),
        )
    ),
    *(
        wrong(f"{WORKER}.{field}", value, worker(**{field: value}), remedy)
        for field, value, remedy in (
            ("restartPolicy", "Sometimes", 'supported values: "OnFailure", "Always", "Never", "ExitCode"'),
            ("restartScope", "Pod", 'supported values: "Task", "Job", "Cluster"'),
            ("drainTimeoutSeconds", -1, "greater than or equal to 0"),
            ("drainTimeoutSeconds", 86_401, "less than or equal to 86400"),
            ("startAfter", "ps", "must be of type array"),
            ("startAfter", 17 * ["ps"], "must have at most 16 items"),
        )
    ),
    *(
        wrong("spec.updateStrategy.rollingUpdate.maxUnavailable", value, rolling(value), remedy)
        for value, remedy in (
            *((value, NUMBER_OR_SHARE) for value in (0, -1, 10_001, "0%", "00%", "101%", "25", "%", "x%", "2.5%", "")),
            ("+100%", "may not be more than 4"),
            (2.5, "must be of type integer,string"),
            (True, "must be of type integer,string"),
        )
    ),
    *(
        wrong(
            f"{WORKER}.disruptionBudget.minAvailable", value, worker(disruptionBudget={"minAvailable": value}), remedy
        )
        for value, remedy in (
            *((value, NUMBER_OR_SHARE) for value in (0, -1, 10_001, "0%", "101%", "25", "")),
            (2.5, "must be of type integer,string"),
        )
    ),
    wrong(
        "spec.updateStrategy.type",
        "Rolling",
        worker().spec(updateStrategy={"type": "Rolling"}),
        'supported values: "Recreate", "RollingUpdate", "OnDelete"',
    ),
    wrong(
        "spec.updateStrategy.maxUnavailable",
        1,
        worker().spec(updateStrategy={"type": "RollingUpdate", "maxUnavailable": 1}),
        "unknown field",
    ),
    *(
        wrong(f"spec.successPolicy.{field}", value, worker().spec(successPolicy={field: value}), remedy)
        for field, value, remedy in (
            ("tasks", "Most", 'supported values: "All", "Any"'),
            ("jobs", [], "should have at least 1 items"),
            ("jobs", 17 * ["worker"], "must have at most 16 items"),
        )
    ),
    wrong(
        "spec.resolver.delivery",
        "Image",
        worker().spec(resolver={"delivery": "Image"}),
        'supported values: "ConfigMap", "None"',
    ),
    wrong("spec.resolver.inject", False, worker().spec(resolver={"inject": False}), "unknown field"),
    wrong("spec.resolver.image", "x", worker().spec(resolver={"image": "x"}), "unknown field"),
    wrong(
        "spec.successPolicy.jobs[1]",
        "the second worker",
        worker().spec(successPolicy={"jobs": ["worker", "worker"]}),
        "Duplicate value",
    ),
    wrong(f"{WORKER}.startAfter[1]", "the second ps", worker(startAfter=["ps", "ps"]).job("ps"), "Duplicate value"),
]

SET_THE_JOBS = "remove it here, or set the one of the job, beside template"
SENSELESS = [
    refused(
        "a job that decides on success must be declared",
        training(successPolicy={"jobs": ["worker", "master"]}),
        "spec.successPolicy.jobs",
        '"master" is not a job that is declared: correct the name, or declare the job under spec.jobs',
    ),
    refused(
        "a job that decides on success must come to an end",
        training(successPolicy={"jobs": ["worker", "ps"]}).job("ps", restartPolicy="Always"),
        "spec.successPolicy.jobs",
        '"ps" never succeeds, because its tasks start again whatever their exit status: remove it, or set another',
    ),
    *(
        refused(
            f"rollingUpdate is not for {type_}",
            rolling(1, type=type_),
            "spec.updateStrategy.rollingUpdate",
            f"is only for type RollingUpdate, and type is {type_}: remove it, or set type RollingUpdate",
        )
        for type_ in ("Recreate", "OnDelete")
    ),
    refused(
        "rollingUpdate is not for the default type",
        worker().spec(updateStrategy={"rollingUpdate": {}}),
        "spec.updateStrategy.rollingUpdate",
        "is only for type RollingUpdate, and type is Recreate",
    ),
    *(
        refused(
            f"restartScope {scope} means nothing where nothing starts again",
            worker(restartPolicy="Never", restartScope=scope),
            f"{WORKER}.restartScope",
            f"is {scope}, but under restartPolicy Never nothing starts again: remove it, or set another restartPolicy",
        )
        for scope in ("Job", "Cluster")
    ),
    *(
        refused(
            f"a template may not say {of_pod} where the job says {policy}",
            worker(restartPolicy=policy, template=pod_template(spec={"restartPolicy": of_pod})),
            f"{WORKER}.template.spec.restartPolicy",
            f"is {of_pod}, but restartPolicy of the job, which decides, is {policy}: {SET_THE_JOBS}",
        )
        for policy, needed in FOR_PODS.items()
        for of_pod in ("OnFailure", "Always", "Never")
        if of_pod != needed
    ),
    *(
        refused(
            f"a template may not say {of_pod} where the job says nothing",
            worker(template=pod_template(spec={"restartPolicy": of_pod})),
            f"{WORKER}.template.spec.restartPolicy",
            f"is {of_pod}, but restartPolicy of the job, which decides, is OnFailure: {SET_THE_JOBS}",
        )
        for of_pod in ("Never", "Always")
    ),
    refused(
        "a job may start only after one that is declared",
        ordered({"ps": [], "worker": ["ps", "master"]}),
        "spec.jobs.worker.startAfter",
        '"master" is not a job that is declared: correct the name, or declare the job under spec.jobs',
    ),
    refused(
        "a job may not start after itself",
        ordered({"ps": [], "worker": ["ps", "worker"]}),
        "spec.jobs.worker.startAfter",
        '"worker" is the job itself, which would wait for its own tasks and never start: remove it',
    ),
    *(
        refused(
            f"a circle of {length} jobs may not be",
            ordered(circle(length)),
            "spec.jobs.job0.startAfter",
            "name each other in a circle, so that none of these jobs would ever start: remove one of the names",
        )
        for length in range(2, 17)
    ),
]


@pytest.mark.parametrize(("manifest", "path", "remedy"), [*VALUES, *SENSELESS])
def test_life_that_makes_no_sense_is_refused(objects: Objects, manifest: Object, path: str, remedy: str) -> None:
    """A manifest with one thing wrong is refused by a message with the path of that thing and what to do about it."""
    message = refusal(objects, manifest)

    assert path in message
    assert remedy in message


@pytest.mark.parametrize("manifest", [row.values[0] for row in SENSELESS], ids=[row.id for row in SENSELESS])
def test_one_wrong_thing_has_one_complaint(objects: Objects, manifest: Object) -> None:
    """No rule complains of what another rule is there for: the message is one, not a list."""
    message = refusal(objects, manifest)

    assert message.count("Invalid value") == 1
    assert "is invalid: [" not in message


def test_only_the_jobs_of_a_circle_are_named(objects: Objects) -> None:
    """Neither those before a circle nor those that only wait for it are told to have one."""
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
def test_orders_are_refused_exactly_where_no_start_is_possible(objects: Objects, orders: int) -> None:
    """Whatever the order, it is taken if the jobs can be sorted, and refused if they cannot."""

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
    """A success policy and an update strategy that say half get the other half."""
    manifest = worker().spec(successPolicy={"jobs": ["worker"]}, updateStrategy={}, resolver={}).build()
    at_its_pace = {"type": "RollingUpdate", "rollingUpdate": {}}

    spec = taken(objects, manifest)["spec"]
    pace = taken(objects, worker().spec(updateStrategy=at_its_pace).build())["spec"]["updateStrategy"]

    assert spec["successPolicy"] == {"jobs": ["worker"], "tasks": "All"}
    assert spec["updateStrategy"] == {"type": "Recreate"}
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
    """spec.managedBy stays as it was when the cluster was created, and the refusal says what to do instead."""
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
    """A cluster can be edited and scaled with its manager as it is, named or not."""
    builder = worker() if manager is None else worker().spec(managedBy=manager)
    objects.create(TFCLUSTERS, namespace, builder.build())

    objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"suspend": True, "backoffLimit": 3}})
    objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"replicas": 2}}, subresource="scale")

    spec = (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]
    assert (spec["suspend"], spec["backoffLimit"], spec["jobs"]["worker"]["replicas"]) == (True, 3, 2)
    assert spec.get("managedBy") == manager


@pytest.mark.parametrize(
    ("edit", "remedy"),
    [
        ({"jobs": {"ps": {"startAfter": ["worker"]}}}, "name each other in a circle"),
        ({"jobs": {"ps": None}}, 'spec.jobs.worker.startAfter: "ps" is not a job that is declared'),
        ({"jobs": {"chief": {"restartPolicy": "Always"}}}, '"chief" never succeeds'),
        ({"jobs": {"chief": {"restartPolicy": "Never"}}}, "spec.jobs.chief.template.spec.restartPolicy"),
        ({"jobs": {"worker": {"restartPolicy": "Never"}}}, "spec.jobs.worker.restartScope"),
        ({"updateStrategy": {"type": "OnDelete"}}, "spec.updateStrategy.rollingUpdate"),
    ],
)
def test_edit_to_senselessness_is_refused(objects: Objects, namespace: str, edit: Object, remedy: str) -> None:
    """What may not be created may not come by an edit either, and the cluster stays as it was."""
    manifest = (
        tfcluster("mnist")
        .spec(
            successPolicy={"jobs": ["chief"]},
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        )
        .job("chief", template=pod_template(spec={"restartPolicy": "OnFailure"}))
        .job("worker", restartScope="Job", startAfter=["ps"])
        .job("ps")
        .build()
    )
    created = objects.create(TFCLUSTERS, namespace, manifest)

    with pytest.raises(ApiException) as caught:
        objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": edit})

    assert remedy in message_of(caught.value)
    assert created["spec"] == (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]
