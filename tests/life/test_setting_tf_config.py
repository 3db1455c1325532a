"""TF_CONFIG that the operator sets, on a real API server: its containers, its content, its updates, its rejections."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.admission import accepted, refusal, refused, taken
from support.lives import await_all_replaced, await_another_pass, launch_running, uids_of
from support.manifests import IMAGE, RECREATE, TFClusterBuilder, pod_template, tfcluster
from support.objects import Object, Objects
from support.world import World, task_names

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import own_task

SET = {"resolver": {"tfConfig": "Environment"}}
OWN = [{"name": "TF_CONFIG", "value": "{}"}]


def setting(**worker: Any) -> TFClusterBuilder:
    return tfcluster("mnist").job("worker", **worker).spec(**SET)


def containers(*names: str, own: str, group: str = "containers") -> Object:
    """Build a template with these containers; one has its own TF_CONFIG."""
    made = [{"name": name, "image": IMAGE, **({"env": OWN} if name == own else {})} for name in names]
    return pod_template(spec={group: made})


# --- admission


@pytest.mark.parametrize(
    "manifest",
    [
        accepted("it is set", setting()),
        accepted("it is not", setting().spec(resolver={"tfConfig": "None"})),
        accepted("in TFJob's layout", setting().spec(resolver={"tfConfig": "TFJob"})),
        accepted("with the resolver", setting().spec(resolver={"delivery": "ConfigMap", **SET["resolver"]})),
        accepted("as many tasks as may be", setting(replicas=2, maxReplicas=999).job("ps")),
        accepted("more without it", setting(replicas=1001).spec(resolver={})),
        accepted("a sidecar's own", setting(template=containers("tensorflow", "own", own="own"))),
        accepted("the own one of a sidecar before", setting(template=containers("own", "tensorflow", own="own"))),
        accepted("an init container's own", setting(template=containers("own", own="own", group="initContainers"))),
        accepted("an own one where none is set", setting(template=pod_template(env=OWN)).spec(resolver={})),
    ],
)
def test_tf_config_that_makes_sense_is_taken(objects: Objects, manifest: Object) -> None:
    """Valid values near the limit of each rule."""
    taken(objects, manifest)


@pytest.mark.server
@pytest.mark.parametrize(
    ("manifest", "path", "remedy"),
    [
        refused(
            "another value",
            setting().spec(resolver={"tfConfig": "File"}),
            "spec.resolver.tfConfig",
            'supported values: "None", "Environment", "TFJob"',
        ),
        refused(
            "a task too many",
            setting(replicas=1000).job("ps"),
            "spec.resolver.tfConfig",
            "there are 1001, counted by maxReplicas (by replicas where that is left out): lower them, or set None",
        ),
        refused(
            "room for a task too many",
            setting(replicas=1, maxReplicas=1001),
            "spec.resolver.tfConfig",
            "there are 1001, counted by maxReplicas",
        ),
        refused(
            "an own one in the container named tensorflow",
            setting(template=containers("first", "tensorflow", own="tensorflow")).job("ps"),
            "spec.resolver.tfConfig",
            "the main container of job worker has one of its own: remove that one, or set None",
        ),
        refused(
            "an own one in the first container where none is named tensorflow",
            setting(template=containers("first", "second", own="first")),
            "spec.resolver.tfConfig",
            "the main container of job worker has one of its own: remove that one, or set None",
        ),
    ],
)
def test_invalid_tf_config_settings_are_rejected(objects: Objects, manifest: Object, path: str, remedy: str) -> None:
    message = refusal(objects, manifest)

    assert path in message
    assert remedy in message


# --- running clusters


def variables(pod: Object, container: str = "tensorflow") -> dict[str, str]:
    spec = pod["spec"]
    found = next(one for one in [*spec.get("initContainers", ()), *spec["containers"]] if one["name"] == container)
    return {entry["name"]: entry.get("value", "") for entry in found["env"]}


def told(pod: Object) -> Any:
    return json.loads(variables(pod)["TF_CONFIG"])


def by_the_resolver(world: World, pod: Object) -> Any:
    """Return the TF_CONFIG of `python -m tfcluster_resolver exec` in a pod, from its volume and its variables."""
    own = own_task(variables(pod))
    assert own is not None
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    files = world.config_maps()[volumes["tfcluster-view"]["configMap"]["name"]]["data"]
    view = contract.load(files.get(contract.task_view_file(own.index)) or files[contract.VIEW_FILE])
    return json.loads(contract.tf_config(view, job=own.job, index=own.index, address=own.address))


def workers_of(pods: Mapping[str, Object]) -> dict[str, int]:
    return {name: len(told(pod)["cluster"]["worker"]) for name, pod in pods.items()}


@pytest.mark.usefixtures("operator")
def test_every_task_gets_the_tf_config_of_the_resolver(world):
    """In each main container, also with filters, and for an evaluator, which sees itself; in no other container."""
    seen = {"deviceFilters": ["/job:ps"], "taskDeviceFilters": {"2": ["/job:ps", "/job:worker/task:0"]}}
    beside = {"name": "beside", "image": IMAGE}
    template = pod_template(spec={"initContainers": [{**beside, "name": "before"}]})
    template["spec"]["containers"].append(beside)
    jobs = {"chief": {}, "ps": {"replicas": 2}, "worker": {"replicas": 3, "template": template, **seen}}
    world.launch("c", {**jobs, "evaluator": {}}, rpcLayer="grpcs", **SET)
    pods = world.await_pods_of("c", task_names("c", chief=1, ps=2, worker=3, evaluator=1))

    assert {name: told(pod) for name, pod in pods.items()} == {
        name: by_the_resolver(world, pod) for name, pod in pods.items()
    }
    worker, evaluator = told(pods["c-worker-2"]), told(pods["c-evaluator-0"])
    address = "c-{}.c." + world.namespace + ".svc:2222"
    assert worker == {
        "cluster": {
            "ps": [address.format("ps-0"), address.format("ps-1")],
            "worker": {"0": address.format("worker-0"), "2": address.format("worker-2")},
        },
        "task": {"type": "worker", "index": 2},
        "rpc_layer": "grpcs",
        "environment": "cloud",
    }
    assert (evaluator["task"], sorted(evaluator["cluster"])) == (
        {"type": "evaluator", "index": 0},
        ["chief", "evaluator", "ps", "worker"],
    )
    assert not any("TF_CONFIG" in variables(pods["c-worker-2"], name) for name in ("before", "beside"))


@pytest.mark.usefixtures("operator")
def test_resize_only_updates_tf_config_of_new_pods(world, kubelet):
    pods = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}}, failedPodsHistoryLimit=0, **SET)
    world.await_condition("c", "Ready", status="True")

    world.scale("c", replicas=3)
    world.await_pods_of("c", task_names("c", worker=3))
    kubelet.run("c-worker-2")
    kubelet.fail("c-worker-1")
    world.await_replaced("c-worker-1", pods["c-worker-1"])
    kubelet.run("c-worker-1")
    world.await_condition("c", "Ready", status="True")
    await_another_pass(world, "c")

    assert world.uid("c-worker-0") == pods["c-worker-0"]
    assert workers_of(world.pods_of("c")) == {"c-worker-0": 2, "c-worker-1": 3, "c-worker-2": 3}
    assert world.condition("c", "UpToDate")["status"] == "True"


@pytest.mark.usefixtures("operator")
def test_an_edit_of_the_field_replaces_the_pods_and_is_named(world, kubelet):
    """As for a template edit, by the update strategy; a resize in the same edit is not reported as the cause."""
    pods = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}}, **RECREATE)
    world.await_condition("c", "Ready", status="True")

    world.edit("c", SET)
    pods = await_all_replaced(world, kubelet, "c", pods)
    kubelet.run(*pods)
    world.await_condition("c", "Ready", status="True")
    assert workers_of(world.pods_of("c")) == {"c-worker-0": 2, "c-worker-1": 2}

    # In this template, the user's variables come before the image.
    template = {"spec": {"containers": [{"name": "tensorflow", "env": [], "image": "registry.test/train:2"}]}}
    edit = {"jobs": {"worker": {"replicas": 3, "template": template}}, "updateStrategy": {"type": "OnDelete"}}
    world.edit("c", edit)
    world.await_condition("c", "UpToDate", status="False", reason="WaitingForDelete")
    assert {name: uid for name, uid in uids_of(world, "c").items() if name in pods} == pods
