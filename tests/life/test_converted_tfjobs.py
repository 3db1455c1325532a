"""Converted TFJobs on a real API server, and TFJobs that are read from one."""

import json

import pytest
from click.testing import CliRunner
from support.admission import DRY_RUN, taken
from support.objects import CRDS, TFCLUSTERS, Kind, Object, Objects
from support.tfjobs import TFJOBS
from support.waiting import eventually

from tfcluster.commands.root import root
from tfcluster.manifest.yaml import documents

DEFINITION: Object = {
    "metadata": {"name": "tfjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"kind": "TFJob", "plural": "tfjobs", "singular": "tfjob"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}
TFJOB = Kind("kubeflow.org/v1", "tfjobs")
#: Pods do not have this field, so kubectl's strict validation rejects the result, and the original.
MISSPELT = "fields out of place"


def clusters_of(text: str) -> list[Object]:
    found = [one.value for one in documents(text.encode())]
    for one in found:
        one["metadata"].pop("namespace", None)
    return [one for one in found if one["kind"] == "TFCluster"]


def convert(*arguments: str, text: str | None = None) -> str:
    result = CliRunner().invoke(root, ["convert", *arguments], input=text)
    assert result.exit_code in (0, 3), result.stderr
    return result.stdout


@pytest.mark.parametrize("name", [*TFJOBS])
def test_server_takes_what_comes_out(objects: Objects, name: str):
    clusters = clusters_of(convert("-f", "-", text=TFJOBS[name]))

    assert clusters
    for cluster in clusters:
        if name == MISSPELT:
            objects.request("POST", DRY_RUN.replace("Strict", "Warn"), cluster)
            continue
        assert within(cluster["spec"], taken(objects, cluster)["spec"])


def within(written: object, stored: object) -> bool:
    if isinstance(written, dict) and isinstance(stored, dict):
        return all(key in stored and within(value, stored[key]) for key, value in written.items() if value is not None)
    if isinstance(written, list) and isinstance(stored, list):
        return len(written) == len(stored) and all(map(within, written, stored))
    return written == stored


@pytest.mark.server
def test_tfjob_of_the_server_becomes_a_tfcluster(control_plane, objects: Objects, new_namespace):
    """--from-cluster reads a TFJob with the fields that the server adds; the result can be created next to it."""
    if objects.get(CRDS, "", "tfjobs.kubeflow.org") is None:
        objects.create(CRDS, "", DEFINITION)
    namespace = new_namespace()
    (job,) = (one.value for one in documents(TFJOBS["all roles"].encode()))
    job["metadata"]["namespace"] = namespace
    job["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json.dumps(job)
    eventually(lambda: served(objects, namespace), what="TFJobs are served")
    objects.create(TFJOB, namespace, job)

    printed = convert("--from-cluster", "ranking", "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    (cluster,) = [one.value for one in documents(printed.encode())]
    objects.create(TFCLUSTERS, namespace, cluster)

    assert cluster["metadata"].keys() == {"name", "namespace", "labels", "annotations"}
    assert cluster["metadata"]["annotations"] == {"example.com/cost-centre": "0042"}
    (from_file,) = clusters_of(convert("-f", "-", text=TFJOBS["all roles"]))
    assert cluster["spec"] == from_file["spec"]


def served(objects: Objects, namespace: str) -> bool:
    try:
        objects.list(TFJOB, namespace)
    except Exception:  # noqa: BLE001 - not yet, in any of several ways
        return False
    return True
