"""The client's offline verdicts on manifests equal those of a real API server."""

import pytest
import yaml
from click.testing import CliRunner
from client.test_client_create import COMMAND, IMAGE, TOPOLOGIES
from client.test_client_render import MANIFESTS
from kubernetes.client.exceptions import ApiException
from support.admission import message_of, taken
from support.manifests import tfcluster
from support.objects import TFCLUSTERS, Objects

from tfcluster.commands.root import root
from tfcluster.kube.api import TFCLUSTERS as CLUSTERS
from tfcluster.kube.api import KubernetesApi
from tfcluster.manifest.files import Manifest
from tfcluster.manifest.validate import complete, problems
from tfcluster.preview.diff import edit_of


@pytest.fixture
def api(control_plane, namespace):
    return KubernetesApi.connect(kubeconfig=control_plane.kubeconfig, namespace=namespace)


@pytest.mark.parametrize("case", MANIFESTS)
def test_defaults_are_the_servers(objects: Objects, case):
    stored = taken(objects, MANIFESTS[case].body)
    assert complete(MANIFESTS[case].body, "default")["spec"] == stored["spec"]


def test_nulls_become_what_the_server_makes_of_them(objects: Objects):
    manifest = tfcluster("a").job("worker", replicas=None, deviceFilters=None).spec(port=None, isolation=None).build()
    container = manifest["spec"]["jobs"]["worker"]["template"]["spec"]["containers"][0]
    container |= {"env": None, "resources": {"limits": None, "requests": {}}}
    assert problems(manifest) == []
    assert complete(manifest, "default")["spec"] == taken(objects, manifest)["spec"]


@pytest.mark.parametrize("case", TOPOLOGIES)
def test_what_create_makes_is_taken(objects: Objects, case):
    shown = CliRunner().invoke(root, ["create", "digits", *IMAGE, *TOPOLOGIES[case][0], *COMMAND])
    assert taken(objects, yaml.safe_load(shown.stdout))["metadata"]["name"] == "digits"


def test_create_applies(control_plane, objects: Objects, namespace, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    options = ["--kubeconfig", str(control_plane.kubeconfig), "-n", namespace, "--apply"]
    ran = CliRunner().invoke(root, ["create", "digits", *IMAGE, "--script", str(tmp_path / "train.py"), *options])
    assert ran.exit_code == 0, ran.output
    uid = objects.get(TFCLUSTERS, namespace, "digits")["metadata"]["uid"]
    maps = objects.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    (owner,) = (
        one["metadata"]["ownerReferences"][0] for one in maps if one["metadata"]["name"].startswith("digits-program-")
    )
    assert (owner["uid"], owner.get("controller")) == (uid, None)


def manifest(**worker):
    return tfcluster("digits").job("ps").job("worker", **worker).build()


def differing(api: KubernetesApi, body) -> dict[str, tuple[object, object]]:
    return {one.path: (one.before, one.after) for one in edit_of(api, Manifest(body, "a test")).fields}


def test_edit_is_what_server_side_apply_makes(api: KubernetesApi, objects: Objects, namespace):
    """Fields that an autoscaler owns stay; fields that we no longer apply are removed; a dry run has no effect."""
    api.apply(CLUSTERS, manifest(maxReplicas=9, drainTimeoutSeconds=7))
    scale = TFCLUSTERS.path(namespace, "digits", "scale")
    scaled = {**objects.request("GET", scale), "spec": {"replicas": 4}}
    objects.request("PUT", f"{scale}?fieldManager=horizontal-pod-autoscaler", scaled)
    before = api.get(CLUSTERS, "digits")
    assert differing(api, manifest(maxReplicas=9, drainTimeoutSeconds=7)) == {}
    assert differing(api, manifest(maxReplicas=9)) == {"spec.jobs.worker.drainTimeoutSeconds": (7, 0)}
    assert differing(api, manifest(maxReplicas=9, drainTimeoutSeconds=7, replicas=2)) == {
        "spec.jobs.worker.replicas": (4, 2)
    }
    # Not the resourceVersion: status writes of the operator change it too.
    assert api.get(CLUSTERS, "digits")["metadata"]["generation"] == before["metadata"]["generation"]


def test_edit_of_a_foreign_field_mentions_force_conflicts(api: KubernetesApi, objects: Objects, namespace):
    """The server would reject it without force."""
    api.apply(CLUSTERS, manifest())
    objects.patch(TFCLUSTERS, namespace, "digits", {"spec": {"jobs": {"worker": {"drainTimeoutSeconds": 9}}}})
    edit = edit_of(api, Manifest(manifest(drainTimeoutSeconds=7), "a test"))
    assert [(one.path, one.before, one.after) for one in edit.fields] == [
        ("spec.jobs.worker.drainTimeoutSeconds", 9, 7)
    ]
    assert edit.notes[0].startswith("it needs --force-conflicts: ")


def test_client_predicts_the_server_rejection(api: KubernetesApi, objects: Objects, namespace):
    api.apply(CLUSTERS, manifest())
    change = {"spec": {"managedBy": "example.test/other"}}
    (told,) = problems({**manifest(), "spec": {**manifest()["spec"], **change["spec"]}}, api.get(CLUSTERS, "digits"))
    with pytest.raises(ApiException) as refused:
        objects.patch(TFCLUSTERS, namespace, "digits", change)
    assert f"spec.managedBy: Forbidden: {told.words}" in message_of(refused.value)
