"""The objects that the operator writes, field by field."""

import copy
from pathlib import Path
from typing import Any

import pytest
from decisions.in_memory import make_cluster, views_for

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.objects.config_map import build as build_config_map
from tfcluster_operator.objects.pod_manifest import build as build_pod

ABOUT = {"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "name": "demo", "uid": "uid-of-the-cluster"}
OWNER = [{**ABOUT, "controller": True, "blockOwnerDeletion": True}]


def pod(template: dict[str, Any], *, job: str = "worker", resolver: str | None = None, **spec: Any) -> dict[str, Any]:
    cluster = make_cluster({job: {"replicas": 2, "template": template}}, **spec)
    task = Task(cluster.jobs[0], 1)
    return build_pod(cluster, task, view_digest="digest", attempt=3, incarnation=4, resolver=resolver)


def metadata(name: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "labels": labels, "ownerReferences": OWNER, **more}


def test_a_config_map_holds_the_views_and_their_epochs():
    cluster = make_cluster({"data_loader": {"replicas": 2, "taskDeviceFilters": {"0": []}}}, generation=2)
    (wanted,) = views_for(cluster)
    epochs = {"tfcluster.dev/epochs": '{"cluster.json":2,"task-0.json":2}'}
    assert build_config_map(cluster, "data_loader", wanted.files) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata("demo-data-loader", naming.job_labels("demo", "data_loader"), annotations=epochs),
        "data": {name: wanted.files[name].text for name in ("cluster.json", "task-0.json")},
    }


def test_a_pod_is_the_users_template_in_its_place():
    program = {"name": "task", "image": "image:1", "command": ["python", "train.py"]}
    template = {"spec": {"containers": [program]}}
    cluster = make_cluster({"data_loader": {"replicas": 2, "template": template}}, clusterDomain="cluster.local")
    name = "demo-data-loader-1"
    annotations = {
        "tfcluster.dev/view": "digest",
        "tfcluster.dev/template-hash": cluster.jobs[0].template_hash,
        "tfcluster.dev/attempt": "3",
        "tfcluster.dev/incarnation": "4",
        "tfcluster.dev/main-container": "task",
    }
    address = f"{name}.demo.default.svc.cluster.local:2222"
    env = {"TFCLUSTER_JOB": "data_loader", "TFCLUSTER_TASK_INDEX": "1", "TFCLUSTER_ADDRESS": address}
    container = {
        **program,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [{"name": "tfcluster-view", "mountPath": "/etc/tfcluster", "readOnly": True}],
    }
    assert pod(template, job="data_loader", clusterDomain="cluster.local") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, naming.task_labels("demo", "data_loader", 1), annotations=annotations),
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "hostname": name,
            "subdomain": "demo",
            "volumes": [{"name": "tfcluster-view", "configMap": {"name": "demo-data-loader"}}],
            "containers": [container],
        },
    }


def test_what_a_pod_has_that_its_template_has_not_is_in_the_docs():
    (container,) = given = [{"name": "task", "image": "image:1"}]
    cluster = make_cluster({"worker": {"taskServer": True, "template": {"spec": {"containers": given}}}})
    spec = build_pod(cluster, Task(cluster.jobs[0], 0), view_digest="", attempt=0, resolver="r", tf_config="{}")["spec"]
    (main,) = spec["containers"]
    added = spec.keys() - {"containers", "volumes"} | main.keys() - container.keys() - {"env", "volumeMounts"}
    added |= {entry["name"] for entry in (*spec["volumes"], *main["env"])}
    added |= {mount["mountPath"] for mount in main["volumeMounts"]}
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "concepts.md").read_text(encoding="utf-8")
    table = page.partition("\n## Pod\n")[2].partition("\n## ")[0]
    assert {"PYTHONPATH", "command", "terminationMessagePolicy"} <= added
    assert [one for one in sorted(added) if f"`{one}" not in table] == []


def test_our_names_win_over_the_templates():
    template = metadata("mine", {naming.LABEL_JOB: "mine", "team": "blue"}, namespace="other", finalizers=["mine"])
    template |= {"ownerReferences": [], "annotations": {naming.ANNOTATION_VIEW: "mine", "note": "x"}}
    spec = {"hostname": "mine", "subdomain": "mine", "containers": []}
    built = pod({"metadata": template, "spec": spec})
    annotations = built["metadata"].pop("annotations")
    assert built["metadata"] == metadata("demo-worker-1", {**naming.task_labels("demo", "worker", 1), "team": "blue"})
    assert (annotations[naming.ANNOTATION_VIEW], annotations["note"]) == ("digest", "x")
    assert (built["spec"]["hostname"], built["spec"]["subdomain"]) == ("demo-worker-1", "demo")


def test_our_environment_comes_first_and_wins():
    """A user's variable can refer to ours with $(NAME); ours cannot be overridden."""
    env = [{"name": "TFCLUSTER_JOB", "value": "mine"}, {"name": "ME", "value": "$(TFCLUSTER_JOB)"}]
    built = pod({"spec": {"containers": [{"name": "task", "env": env}]}})["spec"]["containers"][0]["env"]
    assert [one["name"] for one in built] == ["TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS", "ME"]
    assert built[0]["value"] == "worker"


def test_the_template_stays_as_it_is():
    """Its volumes and mounts come before ours in the pod."""
    mount, data = {"name": "data", "mountPath": "/data"}, {"name": "data", "emptyDir": {}}
    container = {"name": "a", "env": [], "volumeMounts": [mount]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "volumes": [data]}}
    before = copy.deepcopy(template)
    built = pod(template)["spec"]
    assert [one["name"] for one in built["volumes"]] == ["data", "tfcluster-view"]
    mounts = built["containers"][0]["volumeMounts"]
    assert [data, mount] == [built["volumes"][0], mounts[0]]
    assert [one["name"] for one in mounts] == ["data", "tfcluster-view"]
    assert template == before


# --- what delivers the resolver into a pod, and what stays unchanged
ZIP = "/opt/tfcluster-resolver/tfcluster_resolver.zip"
SERVE = ["python3", "-m", "tfcluster_resolver", "serve"]
IDENTITY = ["TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS"]


def spec_of(
    containers: list[dict[str, Any]],
    *,
    resolver: str | None = "tfcluster-resolver-0123456789",
    serves: bool = False,
    **spec: Any,
) -> Any:
    template = {"spec": {"containers": containers, **spec}}
    cluster = make_cluster({"worker": {"port": 2345, "taskServer": serves, "template": template}})
    return build_pod(cluster, Task(cluster.jobs[0], 0), view_digest="d", attempt=0, resolver=resolver)["spec"]


def search_path(container: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a container's environment without the task's identity, for the search path ``container``."""
    env = spec_of([{"name": "a", "command": ["x"], **container}])["containers"][0]["env"]
    assert [one["name"] for one in env[:3]] == IDENTITY
    return env[3:]


ROOT, AFTER = {"name": "ROOT", "value": "/app"}, {"name": "AFTER", "value": "$(PYTHONPATH)"}
KEY = {"valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
FROM_MAP = {"envFrom": [{"configMapRef": {"name": "m"}}]}


def path(value: str | None) -> dict[str, Any]:
    return {"name": "PYTHONPATH", **({} if value is None else {"value": value})}


@pytest.mark.parametrize(
    ("container", "wanted"),
    [
        ({}, [path(ZIP)]),
        ({"env": [path("/app:/lib")]}, [path(f"/app:/lib:{ZIP}")]),
        ({"env": [path(None)]}, [path(ZIP)]),
        ({"env": [path("")]}, [path(ZIP)]),
        ({"env": [ROOT, path("$(ROOT)/lib"), AFTER]}, [ROOT, path(f"$(ROOT)/lib:{ZIP}"), AFTER]),
        (
            {"env": [{"name": "PYTHONPATH", **KEY}, ROOT]},
            [{"name": "TFCLUSTER_USER_PYTHONPATH", **KEY}, path(f"$(TFCLUSTER_USER_PYTHONPATH):{ZIP}"), ROOT],
        ),
        (FROM_MAP, [path(f"$(PYTHONPATH):{ZIP}")]),
        ({**FROM_MAP, "env": [path("/app")]}, [path(f"/app:{ZIP}")]),
    ],
    ids=["none", "a value", "no value", "an empty value", "built on another", "from a key", "from envFrom", "both"],
)
def test_archive_comes_after_the_users_search_path(container, wanted):
    assert search_path(container) == wanted


@pytest.mark.parametrize("resolver", ["tfcluster-resolver-0123456789", None])
@pytest.mark.parametrize("program", [{"command": ["train"]}, {"args": ["--steps=3"]}, {}])
def test_container_keeps_its_own_program(resolver, program):
    (built,) = spec_of([{"name": "tensorflow", **program}], resolver=resolver)["containers"]
    assert {key: built[key] for key in ("command", "args", "readinessProbe") if key in built} == program


PROBE = {"tcpSocket": {"port": 2345}, "periodSeconds": 2, "failureThreshold": 3}
USERS = {"exec": {"command": ["true"]}}


@pytest.mark.parametrize(("given", "probe"), [({}, PROBE), ({"readinessProbe": USERS}, USERS)])
def test_task_server_runs_where_it_is_asked_for(given, probe):
    (built,) = spec_of([{"name": "tensorflow", "image": "stock", **given}], serves=True)["containers"]
    assert (built["command"], built["readinessProbe"], "args" in built) == (SERVE, probe, False)


@pytest.mark.parametrize(("names", "main"), [(["log", "tensorflow"], 1), (["log", "other"], 0)])
def test_only_the_main_container_serves(names, main):
    spec = spec_of([{"name": name} for name in names], initContainers=[{"name": "prepare"}], serves=True)
    assert ["command" in one for one in spec["containers"]] == [index == main for index in range(2)]
    assert not {"command", "readinessProbe"} & spec["initContainers"][0].keys()


@pytest.mark.parametrize("policy", ["File", "FallbackToLogsOnError"])
def test_the_main_container_tells_why_it_failed(policy):
    """The end of the log of a failed task is in the pod's status, unless the template chooses otherwise."""
    chosen = {"terminationMessagePolicy": "File"} if policy == "File" else {}
    main, other = spec_of([{"name": "tensorflow", **chosen}, {"name": "log"}], resolver=None)["containers"]
    assert main["terminationMessagePolicy"] == policy
    assert "terminationMessagePolicy" not in other
