"""How images get into a registry: what they are called there, and what the programs that push are asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_kubernetes import __main__ as command_line
from local_kubernetes import choice, registry
from local_kubernetes.oci_image import write_image
from local_kubernetes.progress import LocalKubernetesError

RECORDER = """#!/bin/sh
[ "$*" = info ] && exit "${DAEMON:-0}"
printf '%s\\n' "${0##*/} $*" >>"$RECORD"
case "$*" in
  load*) echo "Loaded image: localhost/x:1" ;;
  *refused*) echo "unauthorized: log in first" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def record(tmp_path, monkeypatch) -> Path:
    """A PATH with nothing on it yet, and where its recording commands write; no variable is set."""
    (tmp_path / "commands").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'commands'}:/bin")
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    for variable in (registry.VARIABLE, registry.PLAIN_HTTP):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(registry.shutil, "which", lambda name: next(iter((tmp_path / "commands").glob(name)), None))
    monkeypatch.setattr(registry, "install_command", lambda name: (tmp_path / "commands" / name).exists())
    return tmp_path / "record"


def offer(record: Path, *names: str) -> None:
    for name in names:
        path = record.parent / "commands" / name
        path.write_text(RECORDER)
        path.chmod(0o755)


@pytest.fixture
def skopeo(record, monkeypatch, insecure) -> None:
    """Both programs are on PATH, and the user says of the registry whether it is insecure."""
    offer(record, "skopeo", "docker")
    monkeypatch.setenv(registry.PLAIN_HTTP, insecure)


@pytest.fixture
def oci(tmp_path) -> Path:
    write_image(tmp_path / "oci.tar", "localhost/x:1", files={"x": b"x"})
    return tmp_path / "oci.tar"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("registry.example/team", "registry.example/team/tfcluster-operator:1"),
        ("https://registry.example/", "registry.example/tfcluster-operator:1"),
        (" 127.0.0.1:5000 ", "127.0.0.1:5000/tfcluster-operator:1"),
    ],
)
def test_image_has_its_name_in_the_registry(monkeypatch, given, name):
    """The registry and its path take the place of localhost, however the user writes them."""
    monkeypatch.setenv(registry.VARIABLE, given)
    assert registry.name_in(registry.given(), "localhost/tfcluster-operator:1") == name


@pytest.mark.parametrize(
    ("name", "insecure", "expected"),
    [
        ("registry.example/x:1", "", "true"),
        ("registry.example:5000/x:1", "true", "false"),
        ("registry.example:5000/x:1", "1", "false"),
        ("127.0.0.1:5000/x:1", "", "false"),
        ("localhost:5000/x:1", "", "false"),
        ("localhost.example:5000/x:1", "", "true"),
    ],
)
@pytest.mark.usefixtures("skopeo")
def test_plain_http_is_only_for_loopback_and_user_settings(record, oci, name, expected):
    registry.push(oci, name)
    copy = f"skopeo copy --quiet --dest-tls-verify={expected} oci-archive:{oci} docker://{name}"
    assert record.read_text().splitlines() == [copy]


@pytest.mark.parametrize("programs", [(), ("docker",)], ids=["neither", "Docker's command without its daemon"])
def test_missing_push_program_is_reported(record, oci, monkeypatch, programs):
    """No package can be installed either: the error says what to install."""
    offer(record, *programs)
    monkeypatch.setenv("DAEMON", "1")
    with pytest.raises(LocalKubernetesError, match=r"apt-get install skopeo"):
        registry.push(oci, "registry.example/x:1")
    assert not record.exists()


def test_load_image_prints_the_registry_name_or_the_error(record, oci, monkeypatch, capsys):
    offer(record, "skopeo")
    monkeypatch.setenv(choice.VARIABLE, "current")
    monkeypatch.setenv(registry.VARIABLE, "registry.example/team")
    assert command_line.main(["load-image", str(oci), "localhost/x:1"]) == 0
    assert capsys.readouterr().out == "registry.example/team/x:1\n"
    monkeypatch.setenv(registry.VARIABLE, "registry.example/refused")
    assert command_line.main(["load-image", str(oci), "localhost/x:1"]) == 1
    assert "unauthorized: log in first" in capsys.readouterr().err
