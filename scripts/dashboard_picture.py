"""The picture of the dashboard in docs/operate/monitoring.md, of a real operator that runs for ten minutes.

The panels are drawn from the answers to the dashboard's own queries, at their positions in the dashboard.
"""

import argparse
import math
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from conftest import install_crd
from kubernetes import client, config
from support.lives import launch_running
from support.manifests import pod_template
from support.monitored import announce, configuration, dashboard, queries
from support.objects import LEASES, NAMESPACES, PODS, SERVICE_ACCOUNTS, TFCLUSTERS, Objects
from support.operator_process import ALL_NAMESPACES, OperatorProcess
from support.pods import StandInKubelet
from support.prometheus import Prometheus
from support.waiting import eventually
from support.world import World

from local_kubernetes.control_plane import start
from scripts.panels import Line, draw

EVERY = 5
RATE_INTERVAL = "30s"
PLACE = Path(__file__).resolve().parents[1] / "docs" / "images" / "dashboard.svg"


def main() -> None:
    """Run the operator, and draw its metrics in Prometheus."""
    parser = argparse.ArgumentParser(description="Draw the dashboard's picture for the documents.")
    parser.add_argument("--seconds", type=int, default=600, help="how long the operator works (default %(default)s)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name, start(Path(name) / "control-plane") as plane:
        settings = client.Configuration()
        config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
        objects = Objects(client.ApiClient(settings))
        install_crd(objects)
        operators = [OperatorProcess(kubeconfig=plane.kubeconfig, log=Path(name) / f"{i}.log") for i in range(2)]
        objects.create(LEASES, "default", {"metadata": {"name": "tfcluster-operator"}})
        try:
            for operator in operators:
                operator.start(arguments=(*ALL_NAMESPACES, "--leader-election", "--lease-namespace", "default"))
            announce(objects, *(operator.metrics_port for operator in operators))
            folder = Path(name) / "prometheus"
            folder.mkdir()
            with Prometheus(folder, configuration(plane.kubeconfig, every=f"{EVERY}s")) as prometheus:
                eventually(lambda: prometheus.query("count(up == 1) == 2"), what="both operators were scraped")
                began = time.time()
                world, kubelet = _launch_clusters(objects)
                _let_live(world, kubelet, until=began + seconds * 0.7)
                operators[0].stop()  # as in an upgrade: the other one leads from here on
                _let_live(world, kubelet, until=began + seconds)
                PLACE.parent.mkdir(exist_ok=True)
                PLACE.write_text(_picture(prometheus, (began, time.time())), encoding="utf-8")
        finally:
            for operator in operators:
                operator.kill()
    print(f"drawn: {PLACE}")


def _launch_clusters(objects: Objects) -> tuple[World, StandInKubelet]:
    objects.create(NAMESPACES, "", {"metadata": {"name": "research"}})
    eventually(lambda: objects.get(SERVICE_ACCOUNTS, "research", "default"), what="the namespace can hold pods")
    world, kubelet = World(objects, "research"), StandInKubelet(objects, "research")
    for name in ("digits", "speech", "vision"):
        launch_running(world, kubelet, name, {"worker": {"replicas": 4}, "ps": {"replicas": 2}})
    launch_running(world, kubelet, "ranking", {"chief": {"replicas": 1}, "worker": {"replicas": 8}})
    return world, kubelet


def _let_live(world: World, kubelet: StandInKubelet, *, until: float) -> None:
    """Change the clusters as users and nodes do, until a time."""
    chance = random.Random(9)  # noqa: S311 - the same story each time; nothing is secret
    number = 0
    while time.time() < until:
        number += 1
        name = chance.choice(["digits", "speech", "vision", "ranking"])
        _one_event(world, kubelet, chance, name, number)
        time.sleep(chance.uniform(1, 4))
        for pod in world.pods().values():
            if pod["metadata"].get("deletionTimestamp"):
                kubelet.stop(pod["metadata"]["name"])
            elif pod.get("status", {}).get("phase") == "Pending" and chance.random() < 0.6:
                kubelet.run(pod["metadata"]["name"])


def _one_event(world: World, kubelet: StandInKubelet, chance: random.Random, name: str, number: int) -> None:
    running = [n for n, p in world.pods_of(name).items() if p.get("status", {}).get("phase") == "Running"]
    event = chance.choice(["grow", "fail", "lose", "nothing", "nothing", "nothing"])
    if event == "grow":
        world.scale(name, replicas=chance.randint(3, 9))
    elif event == "fail" and running:
        kubelet.fail(chance.choice(running), exit_code=chance.choice([1, 137]))
    elif event == "lose" and running:
        world.delete(PODS, chance.choice(running))
    if not number % 12:
        trial = f"trial-{int(time.time())}"
        launch_running(world, kubelet, trial, {"worker": {"replicas": 1}})
        kubelet.succeed(f"{trial}-worker-0")
    if number == 20 and world.get(TFCLUSTERS, "forecast") is None:
        world.launch("forecast", {"worker": {"template": pod_template(spec={"priorityClassName": "unknown"})}})
    if number == 60:
        world.remove("forecast")


def _picture(prometheus: Prometheus, span: tuple[float, float]) -> str:
    panels = dashboard()["panels"]
    answers = {
        panel["id"]: [
            line
            for query in queries(panel, rate_interval=RATE_INTERVAL)
            for line in _lines(_ask(prometheus, query.expression, span), query.legend)
        ]
        for panel in panels
    }
    return draw(panels, answers, span=span, step=EVERY)


def _ask(prometheus: Prometheus, expression: str, span: tuple[float, float]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = prometheus.ask(
        "query_range", query=expression, start=span[0], end=span[1], step=EVERY
    )["result"]
    return found


def _lines(series: list[dict[str, Any]], legend: str) -> list[Line]:
    lines = []
    for one in series:
        labels = one["metric"]
        name = re.sub(r"{{(\w+)}}", lambda found, of=labels: of.get(found[1], ""), legend)
        points = [(when, float(value)) for when, value in one["values"] if math.isfinite(float(value))]
        if points:
            lines.append(Line(name, points))
    return lines


if __name__ == "__main__":
    main()
