"""Odd credentials, names, outputs and words of others: each ends in a sentence, and none steers a terminal."""

import json
import os
import pty
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from tfcluster.commands import output
from tfcluster.commands.root import root
from tfcluster.errors import TFClusterError, UnreachableError
from tfcluster.kube.api import TFCLUSTERS, KubernetesApi
from tfcluster.kube.connection import error_of_status

ESCAPES = "boo \x1b]0;owned\x07 \x9b31m\u202e"


def steers(text: str) -> bool:
    return any(one in text for one in "\x1b\x07\x9b\u202e")


def test_words_of_others_steer_no_terminal(monkeypatch, capsys):
    def refused(**_):
        raise TFClusterError(f"one\n  two {ESCAPES}", hint=ESCAPES)

    monkeypatch.setattr("tfcluster.commands.options.api_of", refused)
    said = CliRunner().invoke(root, ["status"])
    assert (said.exit_code, "Error: one\n  two boo" in said.stderr) == (1, True)
    output.say(ESCAPES)
    told = capsys.readouterr().err
    assert "boo" in told
    assert not steers(said.stderr + told)


@pytest.fixture
def kubeconfig(tmp_path):
    """Writes a kubeconfig for a server that is not there."""

    def write(user=None, contexts=(), *, current=True):
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            **({"current-context": "c"} if current else {}),
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "c", "user": {"token": "t"} if user is None else user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}, *contexts],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(document))
        return tmp_path / "config"

    return write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a: [b", "line 1: it is not YAML"),
        ("[1, 2]", "not built as"),
        ("hello", "not built as"),
        ("a: 1", "current-context"),
    ],
)
def test_invalid_kubeconfig_is_rejected_with_a_message(tmp_path, text, words):
    (tmp_path / "config").write_text(text)
    with pytest.raises(UnreachableError, match=words) as caught:
        KubernetesApi.connect(kubeconfig=tmp_path / "config")
    assert caught.value.hint


@pytest.mark.parametrize("program", ["no-such-program", "false"])
def test_plugin_without_credentials_is_reported(kubeconfig, capfd, program):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": program, "interactiveMode": "Never"}
    with pytest.raises(UnreachableError, match="does not give credentials"):
        KubernetesApi.connect(kubeconfig=kubeconfig({"exec": plugin}))
    assert "ERROR" not in capfd.readouterr().err


def test_a_token_that_no_request_can_carry_is_not_shown(kubeconfig):
    with pytest.raises(UnreachableError, match="no request can carry") as caught:
        KubernetesApi.connect(kubeconfig=kubeconfig({"token": "very\nprivate"})).list(TFCLUSTERS)
    assert "private" not in str(caught.value) + caught.value.hint
    assert caught.value.__cause__ is None


FORBIDDEN = 'pods is forbidden: User "system:{}" cannot list resource "pods"'


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ({"code": 403, "message": FORBIDDEN.format("anonymous")}, "Log in"),
        ({"code": 403, "message": FORBIDDEN.format("x")}, "administrator"),
        ({"code": 404, "details": {"kind": "namespaces", "name": "lab"}}, "kubectl create namespace lab"),
    ],
)
def test_rejection_has_a_hint(status, hint):
    assert hint in error_of_status({"message": "m", **status}).hint


@pytest.mark.parametrize(
    ("words", "stdin", "told"),
    [
        (["apply", "-f", "-"], "", "nothing to apply"),
        (["apply", "-f", "-"], "---\n---\n", "nothing to apply"),
        (["status", "-n", "a/b"], None, '"a/b" can name no namespace'),
    ],
)
def test_invalid_request_is_rejected(kubeconfig, words, stdin, told):
    said = CliRunner().invoke(root, [*words, "--kubeconfig", str(kubeconfig())], input=stdin)
    assert (said.exit_code, said.stdout, told in said.stderr) == (1, "", True)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False), ("false", False)])
def test_a_terminal_has_colours_unless_its_user_wants_none(tmp_path, no_color, coloured):
    table = "import tfcluster.commands.output as o; o.console().print(o.styled('a', 'waiting'))"
    story = "from tfcluster.local.story import Story; s = Story(['a'], str, broken=str, python='');"
    story += " s.say('b', colour='red'); s.line('a-worker-0', '', b'c')"
    for words in (["-m", "tfcluster", "render", "-f", str(tmp_path / "none")], ["-c", table], ["-c", story]):
        mine, theirs = pty.openpty()
        env = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color"}
        subprocess.run([sys.executable, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env, check=False)
        os.close(theirs)
        assert (b"\x1b[3" in os.read(mine, 1 << 16)) == coloured
        os.close(mine)


def run(*command, redirection=""):
    """Run Python with its output somewhere else, and give its exit code and stderr."""
    words = ["sh", "-c", f'"$0" "$@" {redirection}', sys.executable, *command]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "begun",
    [
        "import tfcluster.__main__; os.kill(os.getpid(), signal.SIGINT)",  # while it imports
        "import click, tfcluster.__main__ as m; click.Context.get_help = press; m.main()",
        "import tfcluster.commands.make as c, tfcluster.__main__ as m; c.create_command.callback = press; m.main()",
    ],
)
def test_ctrl_c_ends_without_a_traceback(begun):
    words = "create x --image i" if "create" in begun else "--help"
    program = (
        f"import os, signal, sys; sys.argv = ['tfcluster', *{words!r}.split()]\n"
        f"def press(*_, **__): os.kill(os.getpid(), signal.SIGINT)\n{begun}"
    )
    assert run("-c", program) == (130, "")


def test_a_doctor_who_reaches_no_server_says_so_of_a_cluster_too(kubeconfig):
    said = CliRunner().invoke(root, ["doctor", "digits", "--kubeconfig", str(kubeconfig()), "-o", "json"])
    assert said.exit_code == 1
    checks = {one["name"]: one["verdict"] for one in json.loads(said.stdout)["checks"]}
    assert checks == {"API server": "failed", "cluster": "unknown"}


def test_dry_run_is_marked_and_a_task_can_be_a_string(client_world):
    client_world.declare("digits", worker=1)
    client_world.await_that(lambda: client_world.status("digits"))
    assert client_world.cli("resume", "digits").stdout == "digits unchanged\n"
    assert client_world.cli("suspend", "digits", "--dry-run").stdout.startswith("digits suspended (dry run")
    said = client_world.cli("delete", "digits", "--dry-run").stderr
    assert "To be deleted: TFCluster digits" in said
    assert "the pods of its 1 task with their logs" in said
    assert "worker: its 1 task is replaced. " in client_world.cli("restart", "digits", "--dry-run").stderr
    with client_world.client() as client:
        client.restart("digits", "worker", dry_run=True)
        client_world.await_that(client_world.uids)
        assert list(client.logs("digits", "worker/0", tail=0)) == []
