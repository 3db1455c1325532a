"""The command line: who works where, and by which Lease."""

from __future__ import annotations

import pytest

import tfcluster_resolver
from tfcluster_operator import settings
from tfcluster_operator.settings import parse_arguments


@pytest.fixture(autouse=True)
def outside_of_a_pod(monkeypatch, tmp_path):
    """No variable and no file says where the process runs."""
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setattr(settings, "_NAMESPACE_FILE", tmp_path / "namespace")


def test_no_election_where_no_namespace_is_known():
    """Outside of a pod the operator leads without an election, unless it is asked for one."""
    assert parse_arguments(["--all-namespaces"]).leader_election is False
    found = parse_arguments(["--all-namespaces", "--lease-namespace", "home"])
    assert (found.leader_election, found.lease_name, found.lease_namespace) == (True, "tfcluster-operator", "home")


def test_a_pod_elects_in_its_own_namespace(monkeypatch, tmp_path):
    """In a pod the Lease is in the pod's namespace: by the kubelet's file, else by POD_NAMESPACE."""
    monkeypatch.setenv("POD_NAMESPACE", "by-variable")
    found = parse_arguments(["--all-namespaces"])
    assert (found.leader_election, found.lease_namespace) == (True, "by-variable")
    (tmp_path / "namespace").write_text("by-file\n", encoding="utf-8")
    assert parse_arguments(["--all-namespaces"]).lease_namespace == "by-file"
    assert parse_arguments(["--all-namespaces", "--no-leader-election"]).leader_election is False


def test_a_namespace_without_a_name_is_refused(capsys):
    """To the API server it would mean all namespaces."""
    with pytest.raises(SystemExit):
        parse_arguments(["--namespace", "team", "--namespace", ""])
    assert "--all-namespaces" in capsys.readouterr().err


def test_new_clusters_are_closed_unless_the_operator_is_told_otherwise():
    """Who says nothing of isolation gets the default of the operator."""
    assert parse_arguments(["--all-namespaces"]).default_isolation == "Cluster"
    assert parse_arguments(["--all-namespaces", "--default-isolation", "None"]).default_isolation == "None"


def test_an_election_without_a_namespace_is_refused(capsys):
    """An election that is asked for, without a place for its Lease, is an error of the command line."""
    with pytest.raises(SystemExit):
        parse_arguments(["--all-namespaces", "--leader-election"])
    assert "--leader-election needs --lease-namespace" in capsys.readouterr().err


def test_metrics_and_format_of_the_log_can_be_chosen(capsys):
    """Metrics are served unless the port is 0, and the log is text unless JSON is asked for."""
    usual = parse_arguments(["--all-namespaces"])
    assert (usual.metrics_port, usual.log_format) == (8081, "text")
    chosen = parse_arguments(["--all-namespaces", "--metrics-port", "0", "--log-format", "json"])
    assert (chosen.metrics_port, chosen.log_format) == (0, "json")
    with pytest.raises(SystemExit):
        parse_arguments(["--all-namespaces", "--log-format", "xml"])
    assert "invalid choice: 'xml'" in capsys.readouterr().err


def test_one_port_cannot_serve_both(capsys):
    """A port that is given twice is an error of the command line, and no traceback; 0 serves nothing, twice."""
    with pytest.raises(SystemExit):
        parse_arguments(["--all-namespaces", "--metrics-port", "8080"])
    assert "--metrics-port and --health-port must differ" in capsys.readouterr().err
    assert parse_arguments(["--all-namespaces", "--metrics-port", "0", "--health-port", "0"]).metrics_port == 0


def test_version_is_told_without_other_options(capsys):
    """``--version`` needs no namespace, and tells the version that the resolver has too."""
    with pytest.raises(SystemExit) as stop:
        parse_arguments(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"tfcluster-operator {tfcluster_resolver.__version__}\n"
