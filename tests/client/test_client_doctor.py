"""`tfcluster doctor`: what follows from what was found, and that nothing that one may not see is a crash."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from client.client_world import refuse
from client.pictured import READY, picture, pod, waiting
from support.memory_kubernetes import Resource

from tfcluster.commands.root import root
from tfcluster.doctor.cluster import GRAVE, REMEDIES, judge_cluster
from tfcluster.doctor.installation import (
    NEWEST_MINOR,
    OLDEST_MINOR,
    RIGHTS,
    Check,
    Installation,
    Unknown,
    judge_installation,
    options_of,
    what_to_do,
    worst,
)
from tfcluster.manifest.validate import definition
from tfcluster_resolver import __version__

ROOT = Path(__file__).parents[2]
FORBIDDEN = Unknown("it is forbidden")
PACKAGED = definition()


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
        rights=dict.fromkeys(range(len(RIGHTS)), True),
        reported=True,
    )
    return list(judge_installation(replace(sound, **changes), PACKAGED))


def expect(checks, name, verdict, told):
    """The worst check of that name has this verdict and these words, and a failure says what to do."""
    ranks = ("failed", "warning", "unknown", "ok")
    check = min((one for one in checks if one.name == name), key=lambda one: ranks.index(one.verdict))
    assert (check.verdict, told in check.message) == (verdict, True), check
    assert check.remedy or verdict != "failed"


def test_healthy_installation_passes_all_checks():
    checks = judged()
    assert {one.verdict for one in checks} == {"ok"}
    assert what_to_do(checks) == []
    names = {"API server", "definition", "operator", "versions", "namespaces", "rights"}
    assert {one.name for one in checks} == names


def edited(change):
    """Give the packaged definition with a change in its schema of spec."""
    other = copy.deepcopy(PACKAGED)
    change(other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return {"definition": other}


def without_a_field(spec):
    del spec["properties"]["isolation"]


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "told"),
    [
        ({"version": {"gitVersion": "v1.33.2+k3s1"}}, "API server", "warning", "1.34"),
        ({"version": {"gitVersion": "v1.99.0"}}, "API server", "ok", "1.37 at the newest"),
        ({"version": FORBIDDEN}, "API server", "failed", "forbidden"),
        ({"served": False}, "definition", "failed", "not served"),
        (edited(without_a_field), "definition", "failed", "lacks spec.isolation"),
        ({"definition": FORBIDDEN}, "definition", "ok", "cannot be seen: it is forbidden"),
        ({"operators": []}, "operator", "warning", "an operator has reported"),
        ({"operators": [], "reported": False}, "operator", "failed", "no Deployment"),
        ({"operators": [], "everywhere": False}, "operator", "unknown", "ask an administrator"),
        ({"operators": FORBIDDEN}, "operator", "unknown", "forbidden"),
        (installed(available=0), "operator", "failed", "0 of 2 available"),
        (installed(available=1), "operator", "warning", "1 of 2 available"),
        (installed(replicas=0, available=0), "operator", "failed", "scaled to 0"),
        (installed(version="0.1.99"), "versions", "ok", "0.1.99"),
        (installed(version="9.0.0"), "versions", "warning", "9.0.0"),
        (installed("--namespace", "a", "--namespace=default"), "namespaces", "ok", "default"),
        (installed("--namespace", "a", "b"), "namespaces", "failed", "a, b"),
        ({**installed("--namespace", "a"), "everywhere": False}, "namespaces", "unknown", "work in a"),
        ({"rights": {0: True, 7: False}}, "rights", "warning", "create pods/portforward (for port-forward)"),
        ({"rights": {0: FORBIDDEN}}, "rights", "unknown", "forbidden"),
    ],
)
def test_installation_problems_are_reported(changes, name, verdict, told):
    expect(judged(**changes), name, verdict, told)


def test_nothing_is_said_of_an_installation_that_cannot_be_reached():
    checks = judged(version=FORBIDDEN, served=FORBIDDEN)
    assert [(one.name, one.verdict) for one in checks] == [("API server", "failed")]


def test_the_range_of_versions_is_the_documented_one():
    text = (ROOT / "docs" / "reference" / "versions.md").read_text()
    assert f"1.{OLDEST_MINOR} at the oldest" in text
    (newest,) = re.findall(r"\| Kubernetes, API server and node \| 1\.(\d+)", text)
    assert int(newest) == NEWEST_MINOR


def test_options_of_an_operator_are_read_in_both_spellings():
    found = options_of(operator("--namespace", "a", "--namespace=b", "--lease-name", "l"))
    assert found == {"--namespace": ["a", "b"], "--lease-name": ["l"], "--leader-election": []}


def two(*pods, conditions=(READY,), **status):
    """Give the picture of a cluster with two tasks, which are ready unless other pods are given."""
    pods = pods or (pod(0), pod(1))
    return picture(*pods, worker={"replicas": 2}, conditions=conditions, status=status)


def unready(reason, message):
    return two(conditions=[("Ready", "False", reason, message)])


FINE, ISOLATED = two(), two(isolation="Cluster")


@pytest.mark.parametrize(
    ("shown", "policies", "name", "verdict", "told"),
    [
        (FINE, [], "cluster", "ok", "mnist is Ready"),
        (unready("Rejected", "quota"), [], "cluster", "failed", "Rejected: quota"),
        (unready("WaitingForJob", "ps"), [], "cluster", "warning", "ps"),
        (two(conditions=[]), [], "cluster", "failed", "no operator has looked"),
        (two(pod(0, **waiting("ErrImagePull", "nope:1"))), [], "images", "failed", "worker-0: Image"),
        (two(pod(0, told="old")), [], "views", "warning", "worker-0"),
        (ISOLATED, [], "isolation", "failed", "has no NetworkPolicy"),
        (ISOLATED, [1], "isolation", "ok", "cannot be seen from here"),
        (ISOLATED, FORBIDDEN, "isolation", "unknown", "forbidden"),
    ],
)
def test_cluster_problems_are_reported(shown, policies, name, verdict, told):
    expect(list(judge_cluster(shown, policies)), name, verdict, told)


def test_shared_cause_of_several_tasks_is_reported_once():
    shown = picture(*(pod(index, **waiting("ImagePullBackOff", "nope:1")) for index in range(9)))
    told = [one for one in judge_cluster(shown, []) if one.name == "images"]
    assert [one.message for one in told] == ["worker-0, worker-1, worker-2 and 6 more: ImagePullBackOff: nope:1"]


def test_each_reported_reason_has_a_remedy():
    """docs/reference/conditions.md says of each reason of Ready what to do; those with something to do are all here."""
    text = (ROOT / "docs" / "reference" / "conditions.md").read_text()
    section = text.partition("### Ready")[2].partition("### ")[0]
    rows = re.findall(r"^\| False \| (`[^|]+`) \|", section, re.MULTILINE)
    documented = {reason for row in rows for reason in re.findall(r"\w+", row)} - {"Suspended"}
    assert set(REMEDIES) == documented
    assert documented > GRAVE.keys()


def test_remedies_are_sorted_by_severity_and_deduplicated():
    told = [("warning", "third"), ("failed", "first"), ("failed", "second"), ("warning", "first"), ("ok", "")]
    checks = [Check("a", verdict, "x", remedy) for verdict, remedy in told]
    assert what_to_do(checks) == ["first", "second", "third"]
    assert (worst(checks), worst(checks[4:]), worst([])) == ("failed", "ok", "ok")


def test_doctor_of_a_cluster_and_of_a_local_run(client_world, monkeypatch):
    client_world.launch("mnist", worker=1)
    output = client_world.ok("doctor", "mnist").output
    assert json.loads(client_world.cli("doctor", "mnist", "-o", "json").stdout)["verdict"] == "ok"
    assert "ok        cluster: mnist is Ready" in output
    assert "unknown   operator" in output
    monkeypatch.setattr("tfcluster.local.session.kubeconfig_of", lambda _: client_world.kubeconfig)
    result = CliRunner().invoke(root, ["doctor", "--local", "mnist"])
    assert result.exit_code == 0, result.output
    verdicts = {line[10:].partition(":")[0]: line[:10].strip() for line in result.output.splitlines()}
    assert verdicts == {"API server": "ok", "cluster": "ok"}


def test_doctor_of_a_cluster_that_cannot_be_seen(client_world, monkeypatch):
    missing = client_world.cli("doctor", "nope")
    assert missing.exit_code == 1
    assert "failed    cluster: TFCluster nope not found" in missing.output
    todo = ["What to do:", "  1. List the TFClusters with `tfcluster status`, in all namespaces with -A."]
    assert missing.output.rstrip().splitlines()[-2:] == todo
    client_world.declare("mnist", worker=1)
    refuse(monkeypatch, "tfclusters", "pods", "services", "configmaps", "networkpolicies", "tfcluster.dev")
    refused = client_world.cli("doctor", "mnist")
    assert refused.exception is None or isinstance(refused.exception, SystemExit), refused.exception
    assert re.search(r"unknown   cluster: (tfcluster\.dev is forbidden|tfclusters)", refused.output)


def test_version_names_the_operators_that_are_installed(client_world):
    labels = {"app.kubernetes.io/name": "tfcluster-operator", "app.kubernetes.io/version": "1.2.3"}
    deployment = {"metadata": {"name": "tfcluster-operator", "labels": labels}}
    assert "operator: not found" in client_world.ok("version").stdout
    client_world.at_once(
        lambda: (
            client_world.kube.install(Resource(plural="deployments", kind="Deployment", group="apps")),
            client_world.kube.create("deployments", "default", deployment),
        )
    )
    assert "operator default/tfcluster-operator: 1.2.3" in client_world.ok("version").stdout
