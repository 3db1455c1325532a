"""The objects that are written, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.in_memory import make_cluster, views_for

from tfcluster_operator.manifests import build_config_map, build_pod, build_service
from tfcluster_operator.model import naming
from tfcluster_operator.model.spec import Task

OWNER = [
    {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "name": "demo",
        "uid": "uid-of-the-cluster",
        "controller": True,
        "blockOwnerDeletion": True,
    }
]


def pod(
    template: dict[str, Any], *, job: str = "worker", index: int = 1, resolver: str | None = None, **spec: Any
) -> dict[str, Any]:
    """Build the pod of a task of a job with this template."""
    cluster = make_cluster({job: {"replicas": 2, "template": template}}, **spec)
    task = Task(cluster.jobs[0], index)
    return build_pod(cluster, task, view_digest="digest", attempt=3, incarnation=4, resolver=resolver)


def test_the_service_is_headless_and_publishes_early():
    """One Service for the cluster, with a name for each pod before it is ready."""
    assert {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "demo",
            "namespace": "default",
            "labels": naming.cluster_labels("demo"),
            "ownerReferences": OWNER,
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"tfcluster.dev/cluster": "demo"},
            "ports": [{"name": "tf-2222", "port": 2222, "targetPort": 2222, "protocol": "TCP"}],
        },
    } == build_service(make_cluster())


def test_a_config_map_holds_the_views_and_their_epochs():
    """One ConfigMap a job, one file a distinct view, the epochs once more in an annotation."""
    cluster = make_cluster({"data_loader": {"replicas": 2, "taskDeviceFilters": {"0": []}}}, generation=2)
    (wanted,) = views_for(cluster)

    assert {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "demo-data-loader",
            "namespace": "default",
            "labels": naming.job_labels("demo", "data_loader"),
            "annotations": {"tfcluster.dev/epochs": '{"cluster.json":2,"task-0.json":2}'},
            "ownerReferences": OWNER,
        },
        "data": {name: wanted.files[name].text for name in ("cluster.json", "task-0.json")},
    } == build_config_map(cluster, wanted)


def test_a_pod_is_the_users_template_in_its_place():
    """The whole pod of a simple template, to the letter."""
    template = {"spec": {"containers": [{"name": "task", "image": "image:1", "command": ["python", "train.py"]}]}}
    cluster = make_cluster({"data_loader": {"replicas": 2, "template": template}}, clusterDomain="cluster.local")

    assert {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "demo-data-loader-1",
            "namespace": "default",
            "labels": naming.task_labels("demo", "data_loader", 1),
            "annotations": {
                "tfcluster.dev/view": "digest",
                "tfcluster.dev/template-hash": cluster.jobs[0].template_hash,
                "tfcluster.dev/attempt": "3",
                "tfcluster.dev/incarnation": "4",
                "tfcluster.dev/main-container": "task",
            },
            "ownerReferences": OWNER,
        },
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "hostname": "demo-data-loader-1",
            "subdomain": "demo",
            "volumes": [{"name": "tfcluster-view", "configMap": {"name": "demo-data-loader"}}],
            "containers": [
                {
                    "name": "task",
                    "image": "image:1",
                    "command": ["python", "train.py"],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "env": [
                        {"name": "TFCLUSTER_JOB", "value": "data_loader"},
                        {"name": "TFCLUSTER_TASK_INDEX", "value": "1"},
                        {
                            "name": "TFCLUSTER_ADDRESS",
                            "value": "demo-data-loader-1.demo.default.svc.cluster.local:2222",
                        },
                    ],
                    "volumeMounts": [{"name": "tfcluster-view", "mountPath": "/etc/tfcluster", "readOnly": True}],
                }
            ],
        },
    } == pod(template, job="data_loader", clusterDomain="cluster.local")


def test_what_a_pod_has_that_its_template_has_not_is_in_the_docs():
    """Nothing is added in silence: the table in docs/concepts.md has each field, variable and volume."""
    (container,) = given = [{"name": "task", "image": "image:1"}]
    cluster = make_cluster({"worker": {"template": {"spec": {"containers": given}}}})
    spec = build_pod(cluster, Task(cluster.jobs[0], 0), view_digest="", attempt=0, resolver="r", tf_config="{}")["spec"]
    (main,) = spec["containers"]
    added = spec.keys() - {"containers", "volumes"} | main.keys() - container.keys() - {"env", "volumeMounts"}
    added |= {entry["name"] for entry in (*spec["volumes"], *main["env"])}
    added |= {mount["mountPath"] for mount in main["volumeMounts"]}

    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
    table = page.partition("\n## Pod\n")[2].partition("\n## ")[0]
    assert {"PYTHONPATH", "command", "terminationMessagePolicy"} <= added
    assert [one for one in sorted(added) if f"`{one}" not in table] == []


def test_token_that_the_template_turns_on_stays_on():
    """The user may want an API token."""
    spec = {"automountServiceAccountToken": True, "containers": []}
    assert pod({"spec": spec})["spec"]["automountServiceAccountToken"] is True


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_named_account_gets_its_token_as_in_any_pod(field):
    """Whether it is mounted is for Kubernetes, the account and the template to say."""
    assert "automountServiceAccountToken" not in pod({"spec": {field: "robot", "containers": []}})["spec"]


def test_our_names_win_over_the_templates():
    """A task's place is not the template's to choose: hostname, subdomain, labels and annotations are ours."""
    built = pod(
        {
            "metadata": {
                "name": "mine",
                "namespace": "other",
                "labels": {naming.LABEL_JOB: "mine", "team": "blue"},
                "annotations": {naming.ANNOTATION_VIEW: "mine", "note": "x"},
                "ownerReferences": [],
                "finalizers": ["mine"],
            },
            "spec": {"hostname": "mine", "subdomain": "mine", "containers": []},
        }
    )

    assert (
        built["metadata"]["name"],
        built["metadata"]["namespace"],
        built["metadata"]["ownerReferences"],
    ) == ("demo-worker-1", "default", OWNER)
    assert "finalizers" not in built["metadata"]
    assert {**naming.task_labels("demo", "worker", 1), "team": "blue"} == built["metadata"]["labels"]
    assert (
        built["metadata"]["annotations"][naming.ANNOTATION_VIEW],
        built["metadata"]["annotations"]["note"],
    ) == ("digest", "x")
    assert (built["spec"]["hostname"], built["spec"]["subdomain"]) == ("demo-worker-1", "demo")


@pytest.mark.parametrize(
    ("names", "main"),
    [(["a"], "a"), (["a", "b"], "a"), (["proxy", "tensorflow"], "tensorflow"), (["tensorflow", "proxy"], "tensorflow")],
)
def test_main_container_is_noted(names, main):
    """Whoever puts a container before it later, the one whose end is the task's is known."""
    built = pod({"spec": {"containers": [{"name": name} for name in names]}})

    assert built["metadata"]["annotations"][naming.ANNOTATION_MAIN_CONTAINER] == main


def test_our_environment_comes_first_and_wins():
    """A user's variable may build on ours by $(NAME); one of our names is ours."""
    env = [{"name": "TFCLUSTER_JOB", "value": "mine"}, {"name": "ME", "value": "$(TFCLUSTER_JOB)"}]

    built = pod({"spec": {"containers": [{"name": "task", "env": env}]}})["spec"]["containers"][0]["env"]

    assert [one["name"] for one in built] == ["TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS", "ME"]
    assert built[0]["value"] == "worker"


def test_every_container_is_in_the_cluster():
    """Init containers and side cars get the environment and the view as well."""
    spec = {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "c"}]}

    built = pod({"spec": spec})["spec"]

    assert [len(one["env"]) for one in (*built["containers"], *built["initContainers"])] == [3, 3, 3]
    assert {"/etc/tfcluster"} == {
        mount["mountPath"] for one in (*built["containers"], *built["initContainers"]) for mount in one["volumeMounts"]
    }


def test_the_users_volumes_and_mounts_stay():
    """Ours are added after them."""
    data = {"name": "data", "emptyDir": {}}
    mount = {"name": "data", "mountPath": "/data"}

    built = pod({"spec": {"volumes": [data], "containers": [{"name": "a", "volumeMounts": [mount]}]}})["spec"]

    assert [data, "tfcluster-view"] == [built["volumes"][0], built["volumes"][1]["name"]]
    assert [mount, "tfcluster-view"] == [
        built["containers"][0]["volumeMounts"][0],
        built["containers"][0]["volumeMounts"][1]["name"],
    ]


def test_the_template_is_not_written_to():
    """Building a pod leaves the template as it was: it serves for every task."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "env": []}], "volumes": []}}

    pod(template)

    assert template == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "a", "env": []}], "volumes": []},
    }
