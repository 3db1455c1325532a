"""The command line: namespaces, and the Lease."""

import pytest

import tfcluster_resolver
from tfcluster_operator import settings
from tfcluster_operator.settings import parse_arguments


@pytest.fixture(autouse=True)
def outside_of_a_pod(monkeypatch, tmp_path):
    """No variable and no file shows that the process runs in a pod."""
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setattr(settings, "_NAMESPACE_FILE", tmp_path / "namespace")


def parsed(arguments: str) -> settings.Settings:
    return parse_arguments(["--all-namespaces", *arguments.split()])


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        # Outside of a pod the operator leads without an election, unless one is requested.
        ("", {"leader_election": False, "metrics_port": 8081, "log_format": "text"}),
        ("--lease-namespace home", {"leader_election": True, "lease_name": "tfcluster-operator"}),
        ("--lease-namespace home", {"lease_namespace": "home"}),
        ("--metrics-port 0 --log-format json", {"metrics_port": 0, "log_format": "json"}),
        ("--metrics-port 0 --health-port 0", {"metrics_port": 0}),
    ],
)
def test_options_are_read(arguments, fields):
    found = parsed(arguments)
    assert {name: getattr(found, name) for name in fields} == fields


def test_a_pod_elects_in_its_own_namespace(monkeypatch, tmp_path):
    """In a pod the Lease is in the pod's namespace: from the kubelet's file, else from POD_NAMESPACE."""
    monkeypatch.setenv("POD_NAMESPACE", "by-variable")
    assert (parsed("").leader_election, parsed("").lease_namespace) == (True, "by-variable")
    (tmp_path / "namespace").write_text("by-file\n", encoding="utf-8")
    assert parsed("").lease_namespace == "by-file"
    assert parsed("--no-leader-election").leader_election is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--namespace", "team", "--namespace", ""], "--all-namespaces"),  # for the API server "" is all namespaces
        (["--all-namespaces", "--leader-election"], "--leader-election needs --lease-namespace"),
        (["--all-namespaces", "--log-format", "xml"], "invalid choice: 'xml'"),
        (["--all-namespaces", "--metrics-port", "8080"], "--metrics-port and --health-port must differ"),
    ],
)
def test_invalid_options_are_rejected(capsys, arguments, words):
    with pytest.raises(SystemExit):
        parse_arguments(arguments)
    assert words in capsys.readouterr().err


def test_version_is_printed_without_other_options(capsys):
    with pytest.raises(SystemExit) as stop:
        parse_arguments(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"tfcluster-operator {tfcluster_resolver.__version__}\n"
