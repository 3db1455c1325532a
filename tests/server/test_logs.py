"""The log of the real process: one line per outcome, with the reason, and without secrets."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.lives import await_all_replaced
from support.log_section import documented_fields
from support.manifests import pod_template
from support.operator_process import OperatorProcess
from support.pods import StandInKubelet
from support.waiting import eventually
from support.world import World

#: It is in every place that can hold a user's secret, and in those that others copy.
CANARY = "CANARY7f3a"


@pytest.fixture
def logged(
    operator_process: OperatorProcess, operator_kubeconfig, namespace: str, tmp_path
) -> Iterator[OperatorProcess]:
    """An operator that logs everything about one namespace, as JSON."""
    operator_process.kill()
    process = OperatorProcess(kubeconfig=operator_kubeconfig, log=tmp_path / "operator.log")
    process.start(arguments=("--namespace", namespace, "--log-level", "debug", "--log-format", "json"))
    yield process
    process.kill()


def lines_of(process: OperatorProcess, cluster: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if cluster in {"", line.get("cluster")}]


def await_line(process: OperatorProcess, cluster: str, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    def probe() -> list[dict[str, Any]]:
        return [line for line in lines_of(process, cluster) if accept(line)]

    return eventually(probe, what="it is logged")[0]


def secretive(**fields: Any) -> dict[str, Any]:
    """Build a template with the canary in every place that can hold a secret."""
    reference = {"secretKeyRef": {"name": f"{CANARY}-secret".lower(), "key": CANARY}}
    container = {
        "env": [
            {"name": "PASSWORD", "value": CANARY},
            {"name": "TOKEN", "valueFrom": reference},
            *fields.pop("env", ()),
        ],
        "args": ["--token", CANARY],
        "command": ["train", f"--key={CANARY}"],
    }
    volumes = [{"name": "keys", "secret": {"secretName": f"{CANARY}-secret".lower()}}]
    annotations = {"example.test/note": CANARY}
    return pod_template(metadata={"annotations": annotations}, spec={"volumes": volumes}, **{**container, **fields})


@pytest.fixture
def told(world: World, kubelet: StandInKubelet, logged: OperatorProcess) -> str:  # noqa: ARG001 - it must run
    """A cluster with secrets that has every event which is logged."""
    name = f"{world.namespace}/c"
    refused = secretive(env=[{"name": f"bad={CANARY}", "value": "x"}])
    jobs = {"worker": {"replicas": 3, "template": secretive()}, "ps": {"template": refused}}
    world.launch("c", jobs, updateStrategy={"type": "Recreate"})
    pods = world.await_pods_of("c", [f"c-worker-{i}" for i in range(3)])
    world.await_condition("c", "Ready", status="False", reason="Rejected")
    assert CANARY in world.condition("c", "Ready")["message"], "the server has repeated it"
    world.edit("c", {"jobs": {"ps": {"template": secretive()}}})
    world.await_pods_of("c", [*pods, "c-ps-0"])
    words = f'secret "{CANARY}-secret" not found'
    kubelet.wait("c-ps-0", reason="CreateContainerConfigError", message=words)
    eventually(lambda: words in world.condition("c", "Ready")["message"], what="the kubelet's words are told")
    kubelet.run(*pods, "c-ps-0")
    world.await_condition("c", "Ready", status="True")
    old = {pod: found["metadata"]["uid"] for pod, found in pods.items()}
    kubelet.fail("c-worker-0", exit_code=3, message=f"no access with {CANARY}")
    new = list(await_all_replaced(world, kubelet, "c", {"c-worker-0": old["c-worker-0"]}))
    # Only now, so that each has a line of its own.
    kubelet.disrupt("c-worker-1")
    new += await_all_replaced(world, kubelet, "c", {"c-worker-1": old["c-worker-1"]})
    assert CANARY in world.status("c")["lastRestart"]["message"], "the status tells the program's last words"
    kubelet.run(*new)
    world.await_condition("c", "Ready", status="True")
    world.edit("c", {"jobs": {"worker": {"template": secretive(args=["--other", CANARY])}}})
    await_all_replaced(world, kubelet, "c", {"c-worker-2": old["c-worker-2"]})
    return name


#: The parts of a line's message, and its level, generation and reasons.
OUTCOMES = {
    "created 3 ConfigMaps: ": ("info", 1, ["Created"]),
    "Rejected: Pod c-ps-0: ": ("warning", 1, ["Rejected"]),
    "Ready is False: Rejected": ("info", 1, ["Rejected"]),
    "Ready is True: AllTasksReady": ("info", 2, ["AllTasksReady"]),
    "worker-0 failed: Error, exit code 3": ("info", 2, ["Error"]),
    "PodFailed: replaced 1 Pod: c-worker-0": ("info", 2, ["PodFailed"]),
    "PodDisrupted: replaced 1 Pod: c-worker-1": ("info", 2, ["PodDisrupted"]),
    "TemplateChanged: ": ("info", 3, ["TemplateChanged"]),
}


def test_log_says_why_and_tells_no_secret(logged, told):
    await_line(logged, told, lambda line: "c-worker-2" in line["message"] and line["generation"] == 3)
    lines = lines_of(logged, told)
    found = {what: [line for line in lines if what in line["message"]] for what in OUTCOMES}
    shown = {what: [(line["level"], line["generation"], line["reasons"]) for line in of] for what, of in found.items()}
    assert {what: of[0] for what, of in shown.items() if of} == OUTCOMES
    assert len(found["Rejected: Pod c-ps-0: "]) == 1, "what goes on being refused is told once"
    assert found["PodFailed: replaced 1 Pod: c-worker-0"][0]["objects"] == {"PodFailed": 1}
    assert {"debug", "info"} <= {line["level"] for line in lines_of(logged)}
    assert {name for line in lines for name in line} == {"time", "level", "logger", "message", *documented_fields()}
    assert CANARY.lower() not in logged.log.read_text(encoding="utf-8").lower()
