"""Names: their exact form, and that only one module has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfcluster_operator.declaration import naming

ROOT = Path(__file__).resolve().parents[2]


def test_names_consist_of_cluster_job_and_index():
    assert naming.service_name("demo") == "demo"
    assert naming.view_name("demo", "data_loader") == "demo-data-loader"
    assert naming.pod_name("demo", "data_loader", 7) == "demo-data-loader-7"


@pytest.mark.parametrize(
    ("domain", "address"), [("", "c-ps-1.c.ns.svc:80"), ("cluster.local", "c-ps-1.c.ns.svc.cluster.local:80")]
)
def test_an_address_is_a_dns_name_and_a_port(domain, address):
    assert address == naming.address(cluster="c", namespace="ns", job="ps", index=1, port=80, cluster_domain=domain)


def test_labels_grow_from_cluster_to_job_to_task():
    cluster = {
        "app.kubernetes.io/name": "tfcluster",
        "app.kubernetes.io/instance": "c",
        "app.kubernetes.io/managed-by": "tfcluster-operator",
        "tfcluster.dev/cluster": "c",
    }
    job = {**cluster, "app.kubernetes.io/component": "data_loader", "tfcluster.dev/job": "data_loader"}
    assert cluster == naming.cluster_labels("c")
    assert job == naming.job_labels("c", "data_loader")
    assert {**job, "tfcluster.dev/task-index": "7"} == naming.task_labels("c", "data_loader", 7)


def test_a_jobs_selector_selects_by_its_labels():
    assert naming.job_selector("c", "ps") == "tfcluster.dev/cluster=c,tfcluster.dev/job=ps"


def test_the_group_is_spelled_in_one_place_only():
    """No label, annotation or API group of ours is a literal outside of naming.py."""
    spelled = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "operator").rglob("*.py")
        if re.search(r"tfcluster\.dev|app\.kubernetes\.io", path.read_text(encoding="utf-8"))
    ]
    assert spelled == ["operator/tfcluster_operator/declaration/naming.py"]
