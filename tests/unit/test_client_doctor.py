"""`tfcluster doctor`: what follows from what was found, and that nothing that one may not see is a crash."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from unit.client_world import refuse
from unit.pictured import NOW, READY, cluster, picture, pod, waiting

from tfcluster.commands.root import root
from tfcluster.doctor.checks import GRAVE, REMEDIES, Check, Unknown, what_to_do, worst
from tfcluster.doctor.cluster import judge_cluster
from tfcluster.doctor.facts import RIGHTS, Installation, Leader, Surroundings, options_of, references_of
from tfcluster.doctor.inside import chosen, judge_answers
from tfcluster.doctor.installation import NEWEST_MINOR, OLDEST_MINOR, judge_installation
from tfcluster.kube.exec import Executed
from tfcluster.manifest.validate import definition
from tfcluster.status.picture import picture_of
from tfcluster_resolver import __version__

ROOT = Path(__file__).parents[2]
FORBIDDEN = Unknown("it is forbidden")
PACKAGED = definition()
LEASE = ("tfcluster-system", "tfcluster-operator")


def operator(*options, version=__version__, replicas=2, available=2):
    """Give a Deployment as the chart makes it, with these options."""
    label = {"app.kubernetes.io/name": "tfcluster-operator"}
    labels = {**label, "app.kubernetes.io/instance": "tfcluster", "app.kubernetes.io/version": version}
    args = [*(options or ("--all-namespaces",)), "--leader-election"]
    return {
        "metadata": {"name": "tfcluster-operator", "namespace": "tfcluster-system", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": label},
            "template": {"spec": {"containers": [{"name": "operator", "args": args}]}},
        },
        "status": {"availableReplicas": available},
    }


def installed(*options, **changes):
    return {"operators": [operator(*options, **changes)]}


def judged(**changes):
    """Judge an installation in which all is well but for these changes."""
    sound = Installation(
        namespace="default",
        server="https://server",
        version={"gitVersion": "v1.37.1"},
        served=True,
        definition=PACKAGED,
        operators=[operator()],
        everywhere=True,
        leaders={LEASE: Leader("lease", "pod-1", renewed=True)},
        rights=dict.fromkeys(range(len(RIGHTS)), True),
        reported=True,
    )
    return list(judge_installation(replace(sound, **changes), PACKAGED))


def expect(checks, name, verdict, told):
    """The worst check of that name has this verdict and these words, and a failure says what to do."""
    ranks = ("failed", "warning", "unknown", "ok", "skipped")
    check = min((one for one in checks if one.name == name), key=lambda one: ranks.index(one.verdict))
    assert (check.verdict, told in check.message) == (verdict, True), check
    assert check.remedy or verdict != "failed"


def test_a_sound_installation_has_nothing_to_do():
    checks = judged()
    assert {one.verdict for one in checks} == {"ok"}
    assert what_to_do(checks) == []
    names = {"API server", "definition", "operator", "versions", "leader", "namespaces", "rights"}
    assert {one.name for one in checks} == names


def edited(change):
    """Give the packaged definition with a change in its schema of spec."""
    other = copy.deepcopy(PACKAGED)
    change(other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return {"definition": other}


def without_a_field(spec):
    del spec["properties"]["isolation"]


def with_a_field(spec):
    spec["properties"]["colour"] = {"type": "string"}


def without_a_rule(spec):
    del spec["x-kubernetes-validations"][0]


def led(holder, **leader):
    return {"leaders": {LEASE: Leader("x", holder, **leader)}}


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "told"),
    [
        ({"version": {"gitVersion": "v1.33.2+k3s1"}}, "API server", "warning", "1.34"),
        ({"version": {"gitVersion": "v1.99.0"}}, "API server", "ok", "1.37 at the newest"),
        ({"version": FORBIDDEN}, "API server", "failed", "forbidden"),
        ({"served": False}, "definition", "failed", "not served"),
        (edited(without_a_field), "definition", "failed", "lacks spec.isolation"),
        (edited(without_a_rule), "definition", "failed", "a rule of spec"),
        (edited(with_a_field), "definition", "warning", "spec.colour"),
        ({"definition": FORBIDDEN}, "definition", "ok", "cannot be seen: it is forbidden"),
        ({"operators": []}, "operator", "warning", "somebody has reported"),
        ({"operators": [], "reported": False}, "operator", "failed", "no Deployment"),
        ({"operators": [], "everywhere": False}, "operator", "unknown", "ask an administrator"),
        ({"operators": FORBIDDEN}, "operator", "unknown", "forbidden"),
        (installed(available=0), "operator", "failed", "0 of 2 available"),
        (installed(available=1), "operator", "warning", "1 of 2 available"),
        (installed(replicas=0, available=0), "operator", "failed", "scaled to 0"),
        (installed(version="0.1.99"), "versions", "ok", "0.1.99"),
        (installed(version="9.0.0"), "versions", "warning", "9.0.0"),
        ({"leaders": {LEASE: None}}, "leader", "failed", "no Lease"),
        ({"leaders": {LEASE: FORBIDDEN}}, "leader", "unknown", "forbidden"),
        (led("pod-1", renewed=False), "leader", "failed", "pod-1 does not renew"),
        (led("", renewed=False), "leader", "failed", "nobody holds it"),
        (led("pod-1", renewed=True, skew=-300), "leader", "warning", "-300 s"),
        (installed("--namespace", "a", "--namespace=default"), "namespaces", "ok", "default"),
        (installed("--namespace", "a", "b"), "namespaces", "failed", "a, b"),
        ({**installed("--namespace", "a"), "everywhere": False}, "namespaces", "unknown", "work in a"),
        ({"rights": {0: True, 7: False}}, "rights", "warning", "create pods/exec (for doctor from inside)"),
        ({"rights": {0: FORBIDDEN}}, "rights", "unknown", "forbidden"),
    ],
)
def test_what_is_wrong_with_an_installation_is_told(changes, name, verdict, told):
    expect(judged(**changes), name, verdict, told)


def test_nothing_is_said_of_an_installation_that_cannot_be_reached():
    checks = judged(version=FORBIDDEN, served=FORBIDDEN)
    assert [(one.name, one.verdict) for one in checks] == [("API server", "failed")]


def test_the_range_of_versions_is_the_documented_one():
    text = (ROOT / "docs" / "support.md").read_text()
    assert f"1.{OLDEST_MINOR} at the oldest" in text
    (newest,) = re.findall(r"\| Kubernetes, API server and node \| 1\.(\d+)", text)
    assert int(newest) == NEWEST_MINOR


def test_options_of_an_operator_are_read_in_both_spellings():
    found = options_of(operator("--namespace", "a", "--namespace=b", "--lease-name", "l"))
    assert found == {"--namespace": ["a", "b"], "--lease-name": ["l"], "--leader-election": []}


def surroundings(**changes):
    """Give surroundings in which all is well but for these changes."""
    return replace(Surroundings({"spec": {"clusterIP": "None"}}, [], [], [], [], [], []), **changes)


def two(*pods, conditions=(READY,), **status):
    """Give the picture of a cluster with two tasks, which are ready unless other pods are given."""
    pods = pods or (pod(0), pod(1))
    return picture(*pods, worker={"replicas": 2}, conditions=conditions, status=status)


def unready(reason, message):
    return two(conditions=[("Ready", "False", reason, message)])


def gpus(number):
    return {"nodes": [{"status": {"allocatable": {"nvidia.com/gpu": number}}}]}


def enforced(network):
    return {"policies": [1], "networks": [{"metadata": {"name": network}}]}


USED = {"hard": {"cpu": "1", "pods": "9"}, "used": {"cpu": "1000m", "pods": "2"}}
QUOTA = {"metadata": {"name": "team"}, "status": USED}
FINE, ISOLATED = two(), two(isolation="Cluster")


@pytest.mark.parametrize(
    ("shown", "changes", "name", "verdict", "told"),
    [
        (FINE, {}, "cluster", "ok", "mnist is Ready"),
        (unready("Rejected", "quota"), {}, "cluster", "failed", "Rejected: quota"),
        (unready("WaitingForJob", "ps"), {}, "cluster", "warning", "ps"),
        (two(conditions=[]), {}, "cluster", "failed", "no operator has looked"),
        (two(pod(0, **waiting("ErrImagePull", "nope:1"))), {}, "images", "failed", "worker-0: Image"),
        (two(pod(0, told="old")), {}, "views", "warning", "worker-0"),
        (FINE, {}, "devices", "failed", "no node has nvidia.com/gpu"),
        (FINE, gpus("1"), "devices", "failed", "no node has more than 1"),
        (FINE, gpus("2"), "devices", "warning", "ask for 4"),
        (FINE, gpus("4"), "devices", "ok", "4 nvidia.com/gpu"),
        (FINE, {"nodes": FORBIDDEN}, "devices", "unknown", "forbidden"),
        (FINE, {"quotas": [QUOTA]}, "quotas", "warning", "cpu of team (1000m of 1)"),
        (FINE, {"quotas": FORBIDDEN}, "quotas", "unknown", "forbidden"),
        (FINE, {"service": None}, "service", "failed", "does not exist"),
        (FINE, {"service": {"spec": {"clusterIP": "10.0.0.1"}}}, "service", "failed", "not headless"),
        (ISOLATED, {}, "isolation", "failed", "has no NetworkPolicy"),
        (ISOLATED, {"policies": [1]}, "isolation", "ok", "cannot be seen from here"),
        (ISOLATED, enforced("cilium"), "isolation", "ok", "cilium enforces"),
        (ISOLATED, enforced("kube-flannel-ds"), "isolation", "warning", "flannel alone"),
        (ISOLATED, {"policies": FORBIDDEN}, "isolation", "unknown", "forbidden"),
    ],
)
def test_what_keeps_a_cluster_from_its_work_is_told(shown, changes, name, verdict, told):
    limits = {"worker": {"nvidia.com/gpu": 2}} if name == "devices" else {}
    expect(list(judge_cluster(shown, limits, surroundings(**changes))), name, verdict, told)


def test_one_cause_of_many_tasks_is_told_once():
    shown = picture(*(pod(index, **waiting("ImagePullBackOff", "nope:1")) for index in range(9)))
    told = [one for one in judge_cluster(shown, {}, surroundings()) if one.name == "images"]
    assert [one.message for one in told] == ["worker-0, worker-1, worker-2 and 6 more: ImagePullBackOff: nope:1"]


def test_everything_that_a_template_cannot_do_without_is_looked_for():
    spec = yaml.safe_load("""
    serviceAccountName: trainer
    imagePullSecrets: [{name: registry}]
    initContainers: [{envFrom: [{configMapRef: {name: defaults}}, {secretRef: {name: keys}}]}]
    containers: [{env: [{name: A, valueFrom: {secretKeyRef: {name: token, key: x}}}, {name: C, value: plain},
      {name: B, valueFrom: {configMapKeyRef: {name: maybe, key: x, optional: true}}}]}]
    volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: w, secret: {secretName: cert}},
      {name: x, projected: {sources: [{configMap: {name: part}}, {secret: {name: half}}]}}, {name: y, emptyDir: {}}]
    """)
    found = {(one.kind, one.name) for one in references_of("worker", {"spec": spec})}
    others = {("ServiceAccount", "trainer"), ("PersistentVolumeClaim", "data")}
    config_maps = {("ConfigMap", name) for name in ("defaults", "part")}
    assert found == others | config_maps | {("Secret", name) for name in ("registry", "keys", "token", "cert", "half")}


def test_each_reason_that_can_be_told_has_a_remedy():
    """docs/conditions.md says of each reason of Ready what to do; those with something to do are all here."""
    text = (ROOT / "docs" / "conditions.md").read_text()
    section = text.partition("### Ready")[2].partition("### ")[0]
    documented = set(re.findall(r"^\| False \| `(\w+)`", section, re.MULTILINE)) - {"Suspended"}
    assert set(REMEDIES) == documented
    assert documented > GRAVE


def answered(task, *checks, code=0, stdout=None, stderr=""):
    said = [{"name": name, "verdict": verdict, "message": words, "remedy": "mend"} for name, verdict, words in checks]
    return task, Executed(code, json.dumps({"checks": said}) if stdout is None else stdout, stderr)


def failed(code, stdout="", stderr=""):
    return answered("worker-0", code=code, stdout=stdout, stderr=stderr)


def test_what_several_tasks_say_alike_is_said_once():
    said = ("peers", "failed", "ps-0 refuses"), ("view", "ok", "x")
    checks = list(judge_answers([answered(f"worker-{index}", *said) for index in range(5)]))
    words = "worker-0, worker-1, worker-2 and 2 more: ps-0 refuses"
    assert checks == [Check("inside: peers", "failed", words, "mend")]


@pytest.mark.parametrize(
    ("answer", "verdict", "told"),
    [
        (answered("worker-0", ("view", "ok", "epoch 3")), "ok", "worker-0"),
        (("worker-0", Unknown("pods/exec is forbidden")), "unknown", "forbidden"),
        (failed(126, stderr="exec: python3: not found"), "unknown", "python3: not found"),
        (failed(1, stderr="No module named tfcluster_resolver"), "unknown", "No module"),
        (failed(124), "warning", "no answer within"),
        (failed(3, "[1]", "\x1b]0;x\x07"), "unknown", "�]0;x�"),
    ],
)
def test_a_task_in_which_one_cannot_look_is_no_failure(answer, verdict, told):
    (check,) = judge_answers([answer])
    assert (check.verdict, told in check.message) == (verdict, True), check


def test_few_tasks_are_examined_and_each_job_among_them():
    pods = [pod(index, job) for job in ("ps", "worker") for index in range(100)]
    pods[0] = pod(0, "ps", **waiting("ErrImagePull", "x"))
    shown = picture_of(cluster({"ps": {"replicas": 100}, "worker": {"replicas": 100}}), pods, [], now=NOW)
    expected = [f"{job}-{index + (job == 'ps')}" for index in range(4) for job in ("ps", "worker")]
    assert [one.name for one in chosen(shown)] == expected


def test_what_to_do_is_told_by_importance_and_once():
    told = [("warning", "third"), ("failed", "first"), ("failed", "second"), ("warning", "first"), ("ok", "")]
    checks = [Check("a", verdict, "x", remedy) for verdict, remedy in told]
    assert what_to_do(checks) == ["first", "second", "third"]
    assert (worst(checks), worst(checks[4:]), worst([])) == ("failed", "ok", "ok")


def test_doctor_of_a_cluster_and_of_a_local_run(client_world, monkeypatch):
    client_world.launch("mnist", worker=1)
    output = client_world.ok("doctor", "mnist").output
    assert json.loads(client_world.cli("doctor", "mnist", "-o", "json").stdout)["verdict"] == "ok"
    assert "ok        cluster: mnist is Ready" in output
    assert "ok        service: Service mnist is headless" in output
    assert "unknown   operator" in output
    monkeypatch.setattr("tfcluster.local.session.kubeconfig_of", lambda _: client_world.kubeconfig)
    result = CliRunner().invoke(root, ["doctor", "--local", "mnist"])
    assert result.exit_code == 0, result.output
    verdicts = {line[10:].partition(":")[0]: line[:10].strip() for line in result.output.splitlines()}
    looked_at = dict.fromkeys(("API server", "cluster", "service"), "ok")
    not_there = ("definition", "operator", "rights", "devices", "isolation", "inside")
    assert verdicts == {**looked_at, **dict.fromkeys(not_there, "skipped")}


def test_doctor_of_a_cluster_that_cannot_be_seen(client_world, monkeypatch):
    missing = client_world.cli("doctor", "nope")
    assert missing.exit_code == 1
    assert "failed    cluster: there is no TFCluster nope" in missing.output
    todo = ["What to do:", "  1. List what is there with `tfcluster status`, in all namespaces with -A."]
    assert missing.output.rstrip().splitlines()[-2:] == todo
    client_world.declare("mnist", worker=1)
    refuse(monkeypatch, "tfclusters", "pods", "services", "configmaps", "networkpolicies", "tfcluster.dev")
    refused = client_world.cli("doctor", "mnist")
    assert refused.exception is None or isinstance(refused.exception, SystemExit), refused.exception
    assert re.search(r"unknown   cluster: (tfcluster\.dev is forbidden|tfclusters)", refused.output)
