"""The scheduler of scheduler-plugins beside a control plane: a second one, with PodGroups of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from local_kubernetes import binaries, processes

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

#: The scheduler's name in its chart; pods set it in their schedulerName.
SCHEDULER = "scheduler-plugins-scheduler"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: Pods that were rejected because of another pod of their gang are not retried when a pod is deleted: without this
#: they wait for five minutes although there is room.
_LOOK_AGAIN = "--pod-max-in-unschedulable-pods-duration=5s"
_DEFINITION = "scheduling.x-k8s.io_podgroups.yaml"


def define_pod_groups(plane: ControlPlane) -> None:
    """Install the CRD of its PodGroups, from its sources; returns when they are served."""
    source = binaries.module_source(binaries.SCHEDULER_PLUGINS) / "config" / "crd" / "bases" / _DEFINITION
    definition = yaml.safe_load(source.read_text())
    plane.api.create(_DEFINITIONS, definition)

    def established(found: dict[str, Any]) -> bool:
        conditions = found.get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
    plane.api.wait_for(path, established, what="the definition of its PodGroups", alive=plane.check_alive)


def start(plane: ControlPlane, *, owner: str = "") -> None:
    """Start the scheduler; the CRD of its PodGroups must be installed."""
    program = binaries.scheduler_plugins() / "scheduler"
    kubeconfig = plane.write_component_kubeconfig("scheduler-plugins", "scheduler-plugins", groups=("system:masters",))
    profile = {
        "schedulerName": SCHEDULER,
        "plugins": {
            "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
            "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        },
        "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [profile],
    }
    settings = plane.state / "scheduler-plugins.json"
    settings.write_text(json.dumps(configuration))
    processes.launch(
        [program, f"--config={settings}", "--secure-port=0", "--v=2", _LOOK_AGAIN],
        name="scheduler-plugins",
        state=plane.state,
        owner=owner,
    )
