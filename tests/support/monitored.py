"""A real Prometheus that scrapes the real operator with the configuration of monitoring.md, and the chart's queries.

The operator runs outside a pod: the configuration finds a pod with the address and the port of the process.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from .objects import NAMESPACES, PODS, SERVICE_ACCOUNTS, Object, Objects
from .waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
MONITORING: Final = ROOT / "charts" / "tfcluster-operator" / "monitoring"
HOME: Final = "tfcluster-system"
"""The namespace of the operator in the documents."""


class Query(NamedTuple):
    panel: str
    unit: str
    expression: str
    legend: str

    def __str__(self) -> str:
        return f"{self.panel}: {self.legend}"


def dashboard() -> Object:
    found: Object = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return found


def queries(panel: Object, *, rate_interval: str) -> list[Query]:
    """Return a panel's queries as Grafana sends them for all namespaces."""
    (namespace,) = (v for v in dashboard()["templating"]["list"] if v["name"] == "namespace")
    return [
        Query(
            panel["title"],
            panel["fieldConfig"]["defaults"]["unit"],
            target["expr"].replace("$__rate_interval", rate_interval).replace("$namespace", namespace["allValue"]),
            target["legendFormat"],
        )
        for target in panel.get("targets", [])
    ]


def alert_rules() -> list[Object]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def documented_queries() -> Iterator[tuple[str, str]]:
    """Return each query of the documents and the name of its page; each line of such a block is one."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^```promql\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                yield page.stem, line


def documented_configuration() -> Object:
    """Return the configuration of Prometheus in docs/operate/monitoring.md."""
    text = (ROOT / "docs" / "operate" / "monitoring.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (found,) = (one for one in map(yaml.safe_load, blocks) if "scrape_configs" in one)
    configured: Object = found
    return configured


def configuration(kubeconfig: Path, *, every: str = "1s") -> str:
    """Return the documented configuration for a Prometheus that also runs outside a pod."""
    documented = documented_configuration()
    for one in documented["scrape_configs"]:
        for discovery in one["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(kubeconfig)
    documented["rule_files"] = [str(MONITORING / name) for name in documented["rule_files"]]
    return yaml.safe_dump({"global": {"scrape_interval": every, "evaluation_interval": every}, **documented})


def announce(objects: Objects, *ports: int) -> None:
    """Create a pod for each operator, with the chart's labels and port."""
    objects.create(NAMESPACES, "", {"metadata": {"name": HOME}})
    eventually(lambda: objects.get(SERVICE_ACCOUNTS, HOME, "default"), what=f"namespace {HOME} can hold pods")
    for number, port in enumerate(ports, start=1):
        labels = {"app.kubernetes.io/name": "tfcluster-operator", "app.kubernetes.io/instance": "tfcluster"}
        container = {
            "name": "operator",
            "image": "tfcluster-operator",
            "ports": [{"name": "health", "containerPort": 8080}, {"name": "metrics", "containerPort": port}],
        }
        name = f"tfcluster-tfcluster-operator-{number}"
        objects.create(PODS, HOME, {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}})
        status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        objects.patch(PODS, HOME, name, {"status": status}, subresource="status")
