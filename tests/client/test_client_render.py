"""`tfcluster render`: what it prints is what the operator makes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from client.client_world import ClientWorld
from support.manifests import tfcluster

from tfcluster.commands.root import root
from tfcluster.manifest.files import Manifest, read
from tfcluster.manifest.validate import UNKNOWN_UID, complete, declare
from tfcluster.manifest.validate import read as read_body
from tfcluster.preview.render import render
from tfcluster_operator.declaration import naming
from tfcluster_resolver import contract

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLURALS = {"Service": "services", "NetworkPolicy": "networkpolicies", "ConfigMap": "configmaps", "Pod": "pods"}


def fields(of: str, *names: str) -> set[str]:
    return {f"{of}.{name}" for name in names}


#: What the API server and the nodes fill in; everything else must be rendered.
FILLED_IN = {
    "*": fields("metadata", "uid", "resourceVersion", "creationTimestamp", "managedFields"),
    "Service": {"status"}
    | fields("spec", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "sessionAffinity", "type"),
    "NetworkPolicy": {"metadata.generation"},
    "ConfigMap": set(),
    "Pod": {"status", "metadata.generation", "spec.volumes.configMap.defaultMode"}
    | fields("spec", "dnsPolicy", "nodeName", "schedulerName", "securityContext", "tolerations", "enableServiceLinks")
    | fields("spec", "terminationGracePeriodSeconds", "containers.imagePullPolicy", "containers.resources")
    | fields("spec.containers", "terminationMessagePath", "terminationMessagePolicy")
    | fields("spec.containers.readinessProbe", "successThreshold", "timeoutSeconds", "failureThreshold"),
}


def example(name: str) -> Manifest:
    return read([EXAMPLES / name]).only()


def made(builder) -> Manifest:
    return Manifest(builder.build(), "a test")


MANIFESTS = {
    **{file.name: example(file.name) for file in sorted(EXAMPLES.glob("*.yaml"))},
    "filters of tasks": made(
        tfcluster("few")
        .job("ps", replicas=2)
        .job("worker", replicas=3, filters=["/job:ps"], task_filters={0: ["/job:ps/task:0"], 7: []}, maxReplicas=9)
        .spec(isolation={"mode": "DeviceFilters"})
    ),
    "order": made(tfcluster("late").job("ps").job("worker", startAfter=["ps"]).job("my_job", startAfter=["worker"])),
    "no resolver": made(tfcluster("bare").job("worker", port=4000).spec(resolver={"delivery": "None"})),
    "evaluator": made(
        tfcluster("judged").job("evaluator").job("chief").spec(clusterDomain="cluster.local", rpcLayer="grpc+loas")
    ),
}


def compare(rendered, live, path=""):
    """Give the paths at which two objects differ, and whether only the live one has the field."""
    if isinstance(rendered, dict) and isinstance(live, dict):
        for key in {*rendered, *live}:
            where = f"{path}.{key}" if path else key
            if key not in rendered or key not in live:
                yield where, key in live
            else:
                yield from compare(rendered[key], live[key], where)
    elif isinstance(rendered, list) and isinstance(live, list) and len(rendered) == len(live):
        for one, other in zip(rendered, live, strict=True):
            yield from compare(one, other, path)
    elif rendered != live:
        yield path, False


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One world for all manifests, whose names differ."""
    shared = ClientWorld(tmp_path_factory.mktemp("world"))
    shared.start()
    yield shared
    shared.stop()


@pytest.mark.parametrize("case", MANIFESTS)
def test_what_is_rendered_is_what_the_operator_makes(world, case):
    manifest = MANIFESTS[case]
    body = world.at_once(lambda: world.kube.create("tfclusters", "default", manifest.body))
    offline = render(declare(manifest, "default"))
    rendered = render(read_body(manifest, complete(manifest.body, "default", body)))
    labels = {one["metadata"]["labels"][naming.LABEL_CLUSTER] for one in rendered.objects}

    def live():
        return {
            (kind, one["metadata"]["name"]): one
            for kind, of in PLURALS.items()
            for one in world.kube.list(of)
            if one["metadata"]["labels"][naming.LABEL_CLUSTER] in labels
        }

    world.await_that(lambda: len(world.at_once(live)) == len(rendered.objects))
    found = world.at_once(live)

    assert {(one["kind"], one["metadata"]["name"]) for one in rendered.objects} == found.keys()
    for one in rendered.objects:
        kind, name = one["kind"], one["metadata"]["name"]
        differences = compare(one, without_pods(found[kind, name]))
        filled_in = FILLED_IN["*"] | FILLED_IN[kind]
        assert {where for where, added in differences if not added or where not in filled_in} == set(), name
    with_uid = json.loads(json.dumps(offline.objects).replace(UNKNOWN_UID, body["metadata"]["uid"]))
    assert without_digests(with_uid) == without_digests(rendered.objects)


def without_pods(one):
    """Leave out which pod each task is, which the chief's views say: it is not known before there are pods."""
    if one["kind"] == "Pod":
        annotations = one["metadata"]["annotations"]
        seen = annotations[naming.ANNOTATION_VIEW].partition("-")[0]
        return {**one, "metadata": {**one["metadata"], "annotations": {**annotations, naming.ANNOTATION_VIEW: seen}}}
    if one["kind"] != "ConfigMap" or "data" not in one:
        return one
    views = {name: replace(contract.load(text), incarnations={}) for name, text in one["data"].items()}
    return {**one, "data": {name: contract.dump(view) for name, view in views.items()}}


def without_digests(objects):
    """Leave out the digests of the views, which the UID is in."""
    return [
        {**one, "metadata": {**one["metadata"], "annotations": {**annotations, naming.ANNOTATION_VIEW: ""}}}
        for one in objects
        for annotations in [one["metadata"].get("annotations", {})]
    ]


def run(*arguments: str, stdin: str | None = None):
    return CliRunner().invoke(root, ["render", *arguments], input=stdin)


def rendered(builder, *options: str):
    """Render what a builder makes, and give the run and its objects."""
    shown = run("-f", "-", *options, stdin=json.dumps(builder.build()))
    return shown, list(yaml.safe_load_all(shown.stdout))


PARAMETER_SERVER = ("-f", str(EXAMPLES / "parameter-server.yaml"))


def test_every_task_is_in_one_view():
    views = render(declare(MANIFESTS["filters of tasks"], "default")).views
    assert [(one.job, one.tasks, one.file) for one in views] == [
        ("ps", (0, 1), "cluster.json"),
        ("worker", (1, 2), "cluster.json"),
        ("worker", (0,), "task-0.json"),
    ]
    assert views[2].view.jobs["ps"] == {0: "few-ps-0.few.default.svc:2222"}
    shown = json.loads(run(*PARAMETER_SERVER, "--views", "-o", "json").stdout)
    assert [one["tasks"] for one in shown["views"]] == [["chief-0"], ["ps-0"], ["worker-0", "worker-1"]]


def test_thousands_of_pods_are_all_there():
    declared = declare(made(tfcluster("wide").job("ps", replicas=900).job("worker", replicas=1600)), "default")
    names = [one["metadata"]["name"] for one in render(declared).objects if one["kind"] == "Pod"]
    assert len(set(names)) == len(names) == 2500


def test_yaml_is_one_document_an_object_and_json_a_list_that_kubectl_takes():
    shown = run(*PARAMETER_SERVER)
    assert shown.exit_code == 0
    kinds = [one["kind"] for one in yaml.safe_load_all(shown.stdout)]
    assert kinds == ["Service", *["NetworkPolicy"] * 3, *["ConfigMap"] * 3, *["Pod"] * 4]
    listed = json.loads(run(*PARAMETER_SERVER, "-o", "json", "-n", "team").stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert {one["metadata"]["namespace"] for one in listed["items"]} == {"team"}


def test_name_that_is_to_be_generated_has_a_stand_in():
    manifest = tfcluster("x").job("worker").build() | {"metadata": {"generateName": "run-"}}
    shown = run("-f", "-", stdin=json.dumps(manifest))
    assert shown.exit_code == 0, shown.output
    names = {one["metadata"]["name"] for one in yaml.safe_load_all(shown.stdout)}
    assert names == {"run-xxxxx", "run-xxxxx-worker", "run-xxxxx-worker-0"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"suspend": True}, "its pods are created when it is resumed"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "leaves it to kueue.x-k8s.io/multikueue"),
    ],
)
def test_what_comes_out_otherwise_is_said(spec, words):
    shown, objects = rendered(tfcluster("one").job("worker").spec(**spec))
    assert (shown.exit_code, words in shown.stderr) == (0, True)
    assert "Pod" in {one["kind"] for one in objects}  # what it would be made of


def test_views_that_no_config_map_holds_are_said():
    domain = "a.rather.long.domain.of.a.cluster.in.which.names.are.long.test"
    shown, objects = rendered(tfcluster("wide").job("worker", replicas=9999).spec(clusterDomain=domain))
    assert "more than a ConfigMap can store" in shown.stderr
    assert [one["kind"] for one in objects] == ["Service", "NetworkPolicy"]


def test_a_budget_and_the_isolation_are_shown():
    cluster = tfcluster("one").job("worker", replicas=3, disruptionBudget={"minAvailable": "50%"})
    (budget,) = [one for one in rendered(cluster)[1] if one["kind"] == "PodDisruptionBudget"]
    assert (budget["metadata"]["name"], budget["spec"]["minAvailable"]) == ("one-worker", 2)
    assert "NetworkPolicy" in rendered(cluster)[0].stdout
    assert "NetworkPolicy" not in rendered(cluster.spec(isolation={"mode": "None"}))[0].stdout
