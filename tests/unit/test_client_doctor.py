"""`tfcluster doctor`: what follows from what was found, and that nothing that one may not see is a crash."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from unit.refusing import refuse
from unit.test_client_status import READY, cluster, pod, views, waiting

from tfcluster import doctor, doctor_cluster, doctor_inside, doctor_installation
from tfcluster.checks import Check, Unknown, what_to_do, worst
from tfcluster.doctor_inside import Answer
from tfcluster.facts import RIGHTS, Installation, Leader, Surroundings, options_of
from tfcluster.kubernetes_api import Executed
from tfcluster.picture import picture_of
from tfcluster.references import references_of
from tfcluster.remedies import GRAVE, REMEDIES
from tfcluster_resolver import __version__

NOW = 1_800_000_000.0
ROOT = Path(__file__).parents[2]
FORBIDDEN = Unknown("it is forbidden")


@pytest.fixture(scope="module")
def packaged():
    return doctor.packaged_definition()


def operator(name="tfcluster-operator", *, namespace="tfcluster-system", args=("--all-namespaces",), **changes):
    """Give a Deployment as the chart makes it."""
    labels = {
        "app.kubernetes.io/name": "tfcluster-operator",
        "app.kubernetes.io/instance": "tfcluster",
        "app.kubernetes.io/version": changes.get("version", __version__),
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": changes.get("replicas", 2),
            "selector": {"matchLabels": {"app.kubernetes.io/name": "tfcluster-operator"}},
            "template": {"spec": {"containers": [{"name": "operator", "args": [*args, "--leader-election"]}]}},
        },
        "status": {"availableReplicas": changes.get("available", 2)},
    }


def installation(packaged, **changes):
    """Give an installation in which all is well."""
    return replace(
        Installation(
            namespace="default",
            server="https://server",
            version={"gitVersion": "v1.37.1"},
            served=True,
            definition=copy.deepcopy(packaged),
            operators=[operator()],
            everywhere=True,
            leaders={("tfcluster-system", "tfcluster-operator"): Leader("lease", "pod-1", renewed=True)},
            rights=dict.fromkeys(range(len(RIGHTS)), True),
            reported=True,
            policies=[],
            webhooks=[],
        ),
        **changes,
    )


def judged(found, packaged):
    return list(doctor_installation.judge(found, packaged))


def of(checks, name):
    """Give the worst check of that name."""
    ranks = ("failed", "warning", "unknown", "ok", "skipped")
    return min((one for one in checks if one.name == name), key=lambda one: ranks.index(one.verdict))


def test_a_sound_installation_has_nothing_to_do(packaged):
    """Every check is ok, and none advises anything."""
    checks = judged(installation(packaged), packaged)

    assert {one.verdict for one in checks} == {"ok"}
    assert what_to_do(checks) == []
    assert {one.name for one in checks} == {
        "API server",
        "definition",
        "operator",
        "versions",
        "leader",
        "namespaces",
        "rights",
    }


def without_a_field(definition):
    older = copy.deepcopy(definition)
    del older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["isolation"]
    return older


def with_a_field(definition):
    newer = copy.deepcopy(definition)
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["colour"] = {"type": "string"}
    return newer


def without_a_rule(definition):
    older = copy.deepcopy(definition)
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["x-kubernetes-validations"][0]
    return older


LEASE = ("tfcluster-system", "tfcluster-operator")
HOOKS = [("policies/judge", "policies/gone")]
POLICY = {"metadata": {"name": "old.tfcluster", "labels": {"app.kubernetes.io/instance": "old"}}}


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "told"),
    [
        ({"version": {"gitVersion": "v1.33.2+k3s1"}}, "API server", "warning", "1.34"),
        ({"version": {"gitVersion": "v1.99.0"}}, "API server", "ok", "1.37 at the newest"),
        ({"version": FORBIDDEN}, "API server", "failed", "forbidden"),
        ({"served": False}, "definition", "failed", "not served"),
        ({"definition": without_a_field}, "definition", "failed", "lacks spec.isolation"),
        ({"definition": without_a_rule}, "definition", "failed", "a rule of spec"),
        ({"definition": with_a_field}, "definition", "warning", "spec.colour"),
        ({"definition": FORBIDDEN}, "definition", "ok", "cannot be seen: it is forbidden"),
        ({"operators": []}, "operator", "warning", "somebody has reported"),
        ({"operators": [], "reported": False}, "operator", "failed", "no Deployment"),
        ({"operators": [], "everywhere": False}, "operator", "unknown", "ask an administrator"),
        ({"operators": FORBIDDEN}, "operator", "unknown", "forbidden"),
        ({"operators": [operator(available=0)]}, "operator", "failed", "0 of 2 available"),
        ({"operators": [operator(available=1)]}, "operator", "warning", "1 of 2 available"),
        ({"operators": [operator(replicas=0, available=0)]}, "operator", "failed", "scaled to 0"),
        ({"operators": [operator(version="0.1.99")]}, "versions", "ok", "0.1.99"),
        ({"operators": [operator(version="9.0.0")]}, "versions", "warning", "9.0.0"),
        ({"leaders": {LEASE: None}}, "leader", "failed", "no Lease"),
        ({"leaders": {LEASE: FORBIDDEN}}, "leader", "unknown", "forbidden"),
        ({"leaders": {LEASE: Leader("x", "pod-1", renewed=False)}}, "leader", "failed", "pod-1 does not renew"),
        ({"leaders": {LEASE: Leader("x", "", renewed=False)}}, "leader", "failed", "nobody holds it"),
        ({"leaders": {LEASE: Leader("x", "pod-1", renewed=True, skew=-300)}}, "leader", "warning", "-300 s"),
        ({"operators": [operator(args=("--namespace", "a", "--namespace=default"))]}, "namespaces", "ok", "default"),
        ({"operators": [operator(args=("--namespace", "a", "b"))]}, "namespaces", "failed", "a, b"),
        (
            {"operators": [operator(args=("--namespace", "a"))], "everywhere": False},
            "namespaces",
            "unknown",
            "work in a",
        ),
        ({"policies": [POLICY]}, "admission", "warning", "old.tfcluster"),
        ({"policies": FORBIDDEN}, "admission", "unknown", "forbidden"),
        ({"webhooks": HOOKS}, "webhooks", "failed", "policies/gone"),
        ({"rights": {0: True, 7: False}}, "rights", "warning", "create pods/exec (for doctor from inside)"),
        ({"rights": {0: FORBIDDEN}}, "rights", "unknown", "forbidden"),
    ],
)
def test_what_is_wrong_with_an_installation_is_told(packaged, changes, name, verdict, told):
    """One thing at a time is wrong; a failure says what to do."""
    changes = {part: change(packaged) if callable(change) else change for part, change in changes.items()}
    checks = judged(installation(packaged, **changes), packaged)

    check = of(checks, name)
    assert (check.verdict, told in check.message) == (verdict, True), check
    assert check.remedy or verdict != "failed"


def test_nothing_is_said_of_an_installation_that_cannot_be_reached(packaged):
    """One failure, not ten."""
    checks = judged(installation(packaged, version=FORBIDDEN, served=FORBIDDEN), packaged)

    assert [(one.name, one.verdict) for one in checks] == [("API server", "failed")]


def test_the_range_of_versions_is_the_documented_one():
    """docs/support.md names the oldest, and the newest that the tests ran with."""
    text = (ROOT / "docs" / "support.md").read_text()

    assert f"1.{doctor_installation.OLDEST_MINOR} at the oldest" in text
    (newest,) = re.findall(r"\| Kubernetes, API server and node \| 1\.(\d+)", text)
    assert int(newest) == doctor_installation.NEWEST_MINOR


def test_options_of_an_operator_are_read_in_both_spellings():
    """`--x y` and `--x=y`, flags, and repetitions."""
    found = options_of(operator(args=("--namespace", "a", "--namespace=b", "--lease-name", "l")))

    assert found == {"--namespace": ["a", "b"], "--lease-name": ["l"], "--leader-election": []}


# --- a cluster


def surroundings(**changes):
    """Give surroundings in which all is well."""
    service = {"spec": {"clusterIP": "None"}}
    return replace(Surroundings(service, [], [], [], [], [], []), **changes)


def picture(pods=None, conditions=(READY,), **status):
    body = cluster({"worker": {"replicas": 2}}, conditions=conditions, status=status)
    return picture_of(body, [pod("worker", 0), pod("worker", 1)] if pods is None else pods, [views()], now=NOW)


def node(**allocatable):
    return {"status": {"allocatable": allocatable}}


GPU = {"worker": {"nvidia.com/gpu": 2}}
FULL = {
    "metadata": {"name": "team"},
    "status": {"hard": {"cpu": "1", "pods": "9"}, "used": {"cpu": "1000m", "pods": "2"}},
}


def network(name):
    return {"metadata": {"name": name}}


ISOLATED = picture(isolation="Cluster")


@pytest.mark.parametrize(
    ("shown", "limits", "changes", "name", "verdict", "told"),
    [
        (picture(), {}, {}, "cluster", "ok", "mnist is Ready"),
        (picture(conditions=[("Ready", "False", "Rejected", "quota")]), {}, {}, "cluster", "failed", "Refused: quota"),
        (picture(conditions=[("Ready", "False", "WaitingForJob", "ps")]), {}, {}, "cluster", "warning", "ps"),
        (picture(conditions=[]), {}, {}, "cluster", "failed", "no operator has looked"),
        (
            picture([pod("worker", 0, **waiting("ErrImagePull", "nope:1"))]),
            {},
            {},
            "images",
            "failed",
            "worker-0: Image",
        ),
        (picture([pod("worker", 0, told="old")]), {}, {}, "views", "warning", "worker-0"),
        (picture(), GPU, {}, "devices", "failed", "no node has nvidia.com/gpu"),
        (picture(), GPU, {"nodes": [node(**{"nvidia.com/gpu": "1"})]}, "devices", "failed", "no node has more than 1"),
        (picture(), GPU, {"nodes": [node(**{"nvidia.com/gpu": "2"})]}, "devices", "warning", "ask for 4"),
        (picture(), GPU, {"nodes": [node(**{"nvidia.com/gpu": "4"})]}, "devices", "ok", "4 nvidia.com/gpu"),
        (picture(), GPU, {"nodes": FORBIDDEN}, "devices", "unknown", "forbidden"),
        (picture(), {}, {"quotas": [FULL]}, "quotas", "warning", "cpu of team (1000m of 1)"),
        (picture(), {}, {"quotas": FORBIDDEN}, "quotas", "unknown", "forbidden"),
        (picture(), {}, {"service": None}, "service", "failed", "does not exist"),
        (picture(), {}, {"service": {"spec": {"clusterIP": "10.0.0.1"}}}, "service", "failed", "not headless"),
        (ISOLATED, {}, {}, "isolation", "failed", "has no NetworkPolicy"),
        (ISOLATED, {}, {"policies": [1]}, "isolation", "ok", "cannot be seen from here"),
        (ISOLATED, {}, {"policies": [1], "networks": [network("cilium")]}, "isolation", "ok", "cilium enforces"),
        (
            ISOLATED,
            {},
            {"policies": [1], "networks": [network("kube-flannel-ds")]},
            "isolation",
            "warning",
            "flannel alone",
        ),
        (ISOLATED, {}, {"policies": FORBIDDEN}, "isolation", "unknown", "forbidden"),
    ],
)
def test_what_keeps_a_cluster_from_its_work_is_told(  # noqa: PLR0917 - a table's row
    shown, limits, changes, name, verdict, told
):
    """One thing at a time is wrong; a failure says what to do."""
    checks = list(doctor_cluster.judge(shown, limits, surroundings(**changes)))

    check = of(checks, name)
    assert (check.verdict, told in check.message) == (verdict, True), check
    assert check.remedy or verdict != "failed"


def test_one_cause_of_many_tasks_is_told_once():
    """It names some of them, and counts the rest."""
    pods = [pod("worker", index, **waiting("ImagePullBackOff", "nope:1")) for index in range(2)]
    body = cluster({"worker": {"replicas": 9}})
    pods += [pod("worker", index, **waiting("ImagePullBackOff", "nope:1")) for index in range(2, 9)]
    shown = picture_of(body, pods, [views()], now=NOW)

    told = [one for one in doctor_cluster.judge(shown, {}, surroundings()) if one.name == "images"]

    assert [one.message for one in told] == ["worker-0, worker-1, worker-2 and 6 more: ImagePullBackOff: nope:1"]


TEMPLATE = {
    "spec": {
        "serviceAccountName": "trainer",
        "imagePullSecrets": [{"name": "registry"}],
        "initContainers": [{"envFrom": [{"configMapRef": {"name": "defaults"}}, {"secretRef": {"name": "keys"}}]}],
        "containers": [
            {
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "token", "key": "x"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "maybe", "key": "x", "optional": True}}},
                    {"name": "C", "value": "plain"},
                ]
            }
        ],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "w", "secret": {"secretName": "cert"}},
            {"name": "x", "projected": {"sources": [{"configMap": {"name": "part"}}, {"secret": {"name": "half"}}]}},
            {"name": "y", "emptyDir": {}},
        ],
    }
}


def test_everything_that_a_template_cannot_do_without_is_looked_for():
    """In env, envFrom, volumes, projected volumes, pull secrets and the account; what is optional is not."""
    found = {(one.kind, one.name) for one in references_of("worker", TEMPLATE)}

    assert found == {
        ("ServiceAccount", "trainer"),
        ("Secret", "registry"),
        ("ConfigMap", "defaults"),
        ("Secret", "keys"),
        ("Secret", "token"),
        ("PersistentVolumeClaim", "data"),
        ("Secret", "cert"),
        ("ConfigMap", "part"),
        ("Secret", "half"),
    }


def test_each_reason_that_can_be_told_has_a_remedy():
    """docs/conditions.md says of each reason of Ready what to do; those with something to do are all here."""
    text = (ROOT / "docs" / "conditions.md").read_text()
    section = text.partition("### Ready")[2].partition("### ")[0]
    documented = set(re.findall(r"^\| False \| `(\w+)`", section, re.MULTILINE)) - {"Suspended"}

    assert set(REMEDIES) == documented
    assert documented > GRAVE


# --- from inside


def answered(task, *checks, code=0, stdout=None, stderr=""):
    said = [{"name": name, "verdict": verdict, "message": words, "remedy": "mend"} for name, verdict, words in checks]
    return Answer(task, Executed(code, json.dumps({"checks": said}) if stdout is None else stdout, stderr))


def test_what_several_tasks_say_alike_is_said_once():
    """With the names of some of them, and what to do."""
    answers = [
        answered(f"worker-{index}", ("peers", "failed", "ps-0 refuses"), ("view", "ok", "x")) for index in range(5)
    ]

    assert list(doctor_inside.judge(answers)) == [
        Check("inside: peers", "failed", "worker-0, worker-1, worker-2 and 2 more: ps-0 refuses", "mend")
    ]


@pytest.mark.parametrize(
    ("answer", "verdict", "told"),
    [
        (answered("worker-0", ("view", "ok", "epoch 3")), "ok", "worker-0"),
        (Answer("worker-0", refused="pods/exec is forbidden"), "unknown", "forbidden"),
        (answered("worker-0", code=126, stdout="", stderr="exec: python3: not found"), "unknown", "python3: not found"),
        (answered("worker-0", code=1, stdout="", stderr="No module named tfcluster_resolver"), "unknown", "No module"),
        (answered("worker-0", code=124, stdout=""), "warning", "no answer within"),
        (answered("worker-0", code=3, stdout="[1]", stderr="\x1b]0;x\x07"), "unknown", "�]0;x�"),
    ],
)
def test_a_task_in_which_one_cannot_look_is_no_failure(answer, verdict, told):
    """The image may have no Python; what a program prints steers no terminal."""
    (check,) = doctor_inside.judge([answer])

    assert (check.verdict, told in check.message) == (verdict, True), check


def test_few_tasks_are_examined_and_each_job_among_them():
    """Of two jobs of 100 tasks eight, half of them of each; none that does not run."""
    pods = [pod(job, index) for job in ("ps", "worker") for index in range(100)]
    pods[0] = pod("ps", 0, **waiting("ErrImagePull", "x"))
    shown = picture_of(cluster({"ps": {"replicas": 100}, "worker": {"replicas": 100}}), pods, [], now=NOW)

    assert [one.name for one in doctor_inside.chosen(shown)] == [
        f"{job}-{index + (job == 'ps')}" for index in range(4) for job in ("ps", "worker")
    ]


# --- together


def test_what_to_do_is_told_by_importance_and_once():
    """Failures before warnings; in each, what others build on first."""
    checks = [
        Check("a", "warning", "x", "third"),
        Check("b", "failed", "x", "first"),
        Check("c", "failed", "x", "second"),
        Check("d", "warning", "x", "first"),
        Check("e", "ok", "x"),
    ]

    assert what_to_do(checks) == ["first", "second", "third"]
    assert (worst(checks), worst(checks[4:]), worst([])) == ("failed", "ok", "ok")


def test_doctor_on_an_api_server_that_serves_little(client_world):
    """What is not served is unknown; the cluster itself is judged."""
    client_world.declare("mnist", {"worker": {}})
    client_world.await_condition("mnist", "Ready")

    result = client_world.cli("doctor", "mnist")
    document = json.loads(client_world.cli("doctor", "mnist", "-o", "json").stdout)

    assert (result.exit_code, document["verdict"]) == (0, "ok"), result.output
    assert "ok        cluster: mnist is Ready" in result.output
    assert "ok        service: Service mnist is headless" in result.output
    assert "unknown   operator" in result.output


def test_doctor_of_a_cluster_that_is_not_there_fails(client_world):
    """Scripts tell by the exit code; what to do comes last."""
    result = client_world.cli("doctor", "nope")

    assert result.exit_code == 1
    assert "failed    cluster: there is no TFCluster nope" in result.output
    assert result.output.rstrip().splitlines()[-2:] == [
        "What to do:",
        "  1. List what is there with `tfcluster status`, in all namespaces with -A.",
    ]


def test_doctor_without_any_right_ends_well(client_world, monkeypatch):
    """Each check is unknown; nothing is a traceback."""
    client_world.declare("mnist", {"worker": {}})
    refuse(monkeypatch, "tfclusters", "pods", "services", "configmaps", "networkpolicies", "tfcluster.dev")

    result = client_world.cli("doctor", "mnist")

    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert (
        "unknown   cluster: tfcluster.dev is forbidden" in result.output
        or "unknown   cluster: tfclusters" in result.output
    )


def test_doctor_of_a_local_run_says_what_does_not_apply(client_world, monkeypatch):
    """There is no Deployment to look for on this machine, and no node."""
    monkeypatch.setattr("tfcluster.local.session.kubeconfig_of", lambda _: client_world.kubeconfig)
    client_world.declare("mnist", {"worker": {}})
    client_world.await_condition("mnist", "Ready")
    from click.testing import CliRunner

    from tfcluster.commands.root import root

    result = CliRunner().invoke(root, ["doctor", "--local", "mnist"])

    assert result.exit_code == 0, result.output
    verdicts = {line[10:].partition(":")[0]: line[:10].strip() for line in result.output.splitlines()}
    assert verdicts == {
        "API server": "ok",
        "definition": "skipped",
        "operator": "skipped",
        "rights": "skipped",
        "cluster": "ok",
        "service": "ok",
        "devices": "skipped",
        "isolation": "skipped",
        "inside": "skipped",
    }
