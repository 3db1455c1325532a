"""What delivers the resolver into a pod, and what it leaves alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from unit.in_memory import make_cluster

from tfcluster_operator.manifests import build_pod
from tfcluster_operator.model.spec import Task

ZIP = "/opt/tfcluster-resolver/tfcluster_resolver.zip"
SERVE = ["python3", "-m", "tfcluster_resolver", "serve"]
IDENTITY = ["TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS"]


def pod(
    containers: list[dict[str, Any]], *, resolver: str | None = "tfcluster-resolver-0123456789", **spec: Any
) -> Any:
    """Build the spec of the pod of a worker with these containers, on port 2345."""
    template = {"spec": {"containers": containers, **spec}}
    cluster = make_cluster({"worker": {"port": 2345, "template": template}})
    return build_pod(cluster, Task(cluster.jobs[0], 0), view_digest="d", attempt=0, resolver=resolver)["spec"]


def search_path(container: dict[str, Any]) -> list[dict[str, Any]]:
    """Give a container's environment but for the task's identity, for the search path of one that had ``container``."""
    env = pod([{"name": "a", "command": ["x"], **container}])["containers"][0]["env"]
    assert [one["name"] for one in env[:3]] == IDENTITY
    return env[3:]


def test_archive_is_mounted_in_every_container():
    """Init containers and side cars too find the archive, read-only, and the pod has the volume once."""
    spec = pod([{"name": "a"}, {"name": "b"}], initContainers=[{"name": "c"}], volumes=[{"name": "data"}])

    assert [one["name"] for one in spec["volumes"]] == ["data", "tfcluster-view", "tfcluster-resolver"]
    assert spec["volumes"][-1]["configMap"] == {"name": "tfcluster-resolver-0123456789"}
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"][-1] == {
            "name": "tfcluster-resolver",
            "mountPath": "/opt/tfcluster-resolver",
            "readOnly": True,
        }
        assert container["env"][-1] == {"name": "PYTHONPATH", "value": ZIP}


@pytest.mark.parametrize(
    ("container", "wanted"),
    [
        ({}, [{"name": "PYTHONPATH", "value": ZIP}]),
        (
            {"env": [{"name": "PYTHONPATH", "value": "/app:/lib"}]},
            [{"name": "PYTHONPATH", "value": f"/app:/lib:{ZIP}"}],
        ),
        ({"env": [{"name": "PYTHONPATH"}]}, [{"name": "PYTHONPATH", "value": ZIP}]),
        ({"env": [{"name": "PYTHONPATH", "value": ""}]}, [{"name": "PYTHONPATH", "value": ZIP}]),
        (
            {
                "env": [
                    {"name": "ROOT", "value": "/app"},
                    {"name": "PYTHONPATH", "value": "$(ROOT)/lib"},
                    {"name": "AFTER", "value": "$(PYTHONPATH)"},
                ]
            },
            [
                {"name": "ROOT", "value": "/app"},
                {"name": "PYTHONPATH", "value": f"$(ROOT)/lib:{ZIP}"},
                {"name": "AFTER", "value": "$(PYTHONPATH)"},
            ],
        ),
        (
            {
                "env": [
                    {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                    {"name": "B", "value": "b"},
                ]
            },
            [
                {"name": "TFCLUSTER_USER_PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "PYTHONPATH", "value": f"$(TFCLUSTER_USER_PYTHONPATH):{ZIP}"},
                {"name": "B", "value": "b"},
            ],
        ),
        (
            {"envFrom": [{"configMapRef": {"name": "m"}}]},
            [{"name": "PYTHONPATH", "value": f"$(PYTHONPATH):{ZIP}"}],
        ),
        (
            {
                "envFrom": [{"configMapRef": {"name": "m"}}],
                "env": [{"name": "PYTHONPATH", "value": "/app"}],
            },
            [{"name": "PYTHONPATH", "value": f"/app:{ZIP}"}],
        ),
    ],
    ids=["none", "a value", "no value", "an empty value", "built on another", "from a key", "from envFrom", "both"],
)
def test_archive_comes_after_the_users_search_path(container, wanted):
    """The user's own PYTHONPATH stays in front, wherever it comes from; no empty part stands for the working folder."""
    assert search_path(container) == wanted


@pytest.mark.parametrize("resolver", ["tfcluster-resolver-0123456789", None])
@pytest.mark.parametrize("program", [{"command": ["train"]}, {"args": ["--steps=3"]}])
def test_container_with_a_program_keeps_it(resolver, program):
    """A container that has a command or arguments runs them, and gets no probe."""
    (built,) = pod([{"name": "tensorflow", **program}], resolver=resolver)["containers"]

    assert {key: built[key] for key in ("command", "args", "readinessProbe") if key in built} == program


def test_container_without_a_program_serves():
    """The main container that names no program runs the task server, and is ready when that listens."""
    (built,) = pod([{"name": "tensorflow", "image": "stock"}])["containers"]

    assert built["command"] == SERVE
    assert "args" not in built
    assert built["readinessProbe"] == {"tcpSocket": {"port": 2345}, "periodSeconds": 2, "failureThreshold": 3}


def test_the_users_probe_stays():
    """A readiness probe of the template is left as it is."""
    probe = {"exec": {"command": ["true"]}}

    (built,) = pod([{"name": "a", "readinessProbe": probe}])["containers"]

    assert (built["command"], built["readinessProbe"]) == (SERVE, probe)


@pytest.mark.parametrize(("names", "main"), [(["log", "tensorflow"], 1), (["log", "other"], 0)])
def test_only_the_main_container_serves(names, main):
    """The one named tensorflow serves, else the first; others that name no program run their image's."""
    spec = pod([{"name": name} for name in names], initContainers=[{"name": "prepare"}])

    assert ["command" in one for one in spec["containers"]] == [index == main for index in range(2)]
    assert not {"command", "readinessProbe"} & spec["initContainers"][0].keys()


def test_without_injection_nothing_is_added():
    """Where the resolver is not injected there is no volume, mount, search path, command or probe of ours."""
    spec = pod([{"name": "tensorflow", "image": "mine"}], resolver=None)

    assert [one["name"] for one in spec["volumes"]] == ["tfcluster-view"]
    (built,) = spec["containers"]
    assert [one["name"] for one in built["env"]] == IDENTITY
    assert [one["name"] for one in built["volumeMounts"]] == ["tfcluster-view"]
    assert set(built) == {"name", "image", "env", "volumeMounts", "terminationMessagePolicy"}


def test_injection_writes_to_no_template():
    """The template is left as it was: it serves for every task."""
    container = {"name": "a", "env": [{"name": "PYTHONPATH", "value": "/app"}], "volumeMounts": []}
    before = copy.deepcopy(container)

    pod([container])

    assert container == before


@pytest.mark.parametrize("policy", ["File", "FallbackToLogsOnError"])
def test_the_main_container_tells_why_it_failed(policy):
    """The end of the log of a failed task is in the pod's status, unless the template chooses otherwise."""
    chosen = {"terminationMessagePolicy": "File"} if policy == "File" else {}

    main, other = pod([{"name": "tensorflow", **chosen}, {"name": "log"}], resolver=None)["containers"]

    assert main["terminationMessagePolicy"] == policy
    assert "terminationMessagePolicy" not in other


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_pods_are_restarted_by_the_operator_alone(policy):
    """No kubelet restarts a task: delays and counts are the operator's."""
    assert pod([{"name": "a"}], restartPolicy=policy)["restartPolicy"] == "Never"
