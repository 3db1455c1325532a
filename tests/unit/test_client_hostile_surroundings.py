"""Odd credentials, names, outputs and words of others: each ends in a sentence, and none steers a terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys

import kubernetes
import pytest
import yaml
from click.testing import CliRunner

from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.root import root
from tfcluster.errors import TFClusterError, UnreachableError
from tfcluster.kubernetes_api import TFCLUSTERS, KubernetesApi
from tfcluster.redaction import Redaction
from tfcluster.refusals import of_status

ESCAPES = "boo \x1b]0;owned\x07 \x9b31m\u202e"


def steers(text: str) -> bool:
    return any(one in text for one in "\x1b\x07\x9b\u202e")


def test_words_of_others_steer_no_terminal(monkeypatch, capsys):
    """An error that quotes the API server, its hint and what is told: control characters are replaced, lines stay."""

    def refused(**_):
        raise TFClusterError(f"one\n  two {ESCAPES}", hint=ESCAPES)

    monkeypatch.setattr("tfcluster.commands.options.api_of", refused)
    said = CliRunner().invoke(root, ["status"])
    assert said.exit_code == 1
    assert "Error: one\n  two boo" in said.stderr
    assert not steers(said.stderr)
    output.say(ESCAPES)
    told = capsys.readouterr().err
    assert "boo" in told
    assert not steers(told)


def kubeconfig(path, user):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "c", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a: [b", "line 1: it is no YAML"),
        ("[1, 2]", "not built as"),
        ("hello", "not built as"),
        ("a: 1", "current-context"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_in_words(tmp_path, text, words):
    """It is no YAML, or YAML of another shape."""
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(UnreachableError, match=words) as caught:
        KubernetesApi.connect(kubeconfig=file)
    assert caught.value.hint


def test_a_context_that_is_named_needs_no_current_one(tmp_path):
    """As kubectl has it; its namespace counts, and a context that is not there is told."""
    file = kubeconfig(tmp_path / "config", {"token": "t"})
    document = yaml.safe_load(file.read_text())
    del document["current-context"]
    document["contexts"].append({"name": "d", "context": {"cluster": "c", "user": "c", "namespace": "team"}})
    file.write_text(yaml.safe_dump(document))

    found = [KubernetesApi.connect(kubeconfig=file, context=name) for name in "cd"]

    assert [one.namespace for one in found] == ["default", "team"]
    with pytest.raises(UnreachableError, match="name e in"):
        KubernetesApi.connect(kubeconfig=file, context="e")


@pytest.mark.parametrize("program", ["no-such-program", "false"])
def test_a_plugin_that_gives_no_credentials_is_named(tmp_path, capfd, program):
    """The official client logs it and goes on as nobody; the user is told, and nothing else is printed."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": program, "interactiveMode": "Never"}
    file = kubeconfig(tmp_path / "config", {"exec": plugin})
    with pytest.raises(UnreachableError, match="gives no credentials"):
        KubernetesApi.connect(kubeconfig=file)
    assert "ERROR" not in capfd.readouterr().err


def test_what_others_log_meanwhile_is_no_matter_of_credentials(tmp_path, monkeypatch):
    """A kubeconfig without credentials is fine where the server asks for none, whatever else the program logs."""
    file = kubeconfig(tmp_path / "config", {})
    load = kubernetes.config.load_kube_config

    def loaded_while_others_log(**given):
        logging.error("Task exception was never retrieved")  # noqa: LOG015 - asyncio's and others' errors reach it, too
        load(**given)

    monkeypatch.setattr(kubernetes.config, "load_kube_config", loaded_while_others_log)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        KubernetesApi.connect(kubeconfig=file).list(TFCLUSTERS)


def test_a_token_that_no_request_can_carry_is_not_shown(tmp_path):
    """A token with the end of a line in it: an error without the token, also in its causes."""
    file = kubeconfig(tmp_path / "config", {"token": "very\nprivate"})
    with pytest.raises(UnreachableError, match="no request can carry") as caught:
        KubernetesApi.connect(kubeconfig=file).list(TFCLUSTERS)
    assert "private" not in str(caught.value) + caught.value.hint
    assert caught.value.__cause__ is None


def test_nobody_is_told_to_log_in():
    """A right that "system:anonymous" lacks is no matter of rights."""
    words = 'pods is forbidden: User "system:anonymous" cannot list resource "pods"'
    assert "Log in" in of_status({"code": 403, "message": words}).hint
    assert "administrator" in of_status({"code": 403, "message": words.replace("anonymous", "x")}).hint


def test_a_namespace_that_is_missing_can_be_created():
    """A refusal that names a namespace says how to make one."""
    details = {"kind": "namespaces", "name": "lab"}
    assert "kubectl create namespace lab" in of_status({"code": 404, "message": "m", "details": details}).hint


@pytest.mark.parametrize("name", ["", ".", "..", 5])
def test_a_name_that_names_nothing_is_refused(tmp_path, name):
    """NB: an empty name would be the path of all TFClusters; nothing is sent, as the server that is not there shows."""
    client = Client(KubernetesApi.connect(kubeconfig=kubeconfig(tmp_path / "config", {"token": "t"})))
    with pytest.raises(TFClusterError, match="can name nothing"):
        client.get(name)
    with pytest.raises(TFClusterError, match="can name nothing"):
        client.api.delete(TFCLUSTERS, name, "default", uid="x")


def test_a_namespace_that_can_be_none_is_refused(tmp_path):
    """It is not taken for a missing definition."""
    at = kubeconfig(tmp_path / "config", {"token": "t"})
    said = CliRunner().invoke(root, ["status", "--kubeconfig", str(at), "-n", "a/b"])
    assert said.exit_code == 1
    assert '"a/b" can name no namespace' in said.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["create", "a", "--image", "i", "--workers", "9" * 20, "--", "train"],
        ["create", "a", "--image", "i", "--gpus", "9" * 20, "--", "train"],
        ["local", "run", "-f", "a.yaml", "--gpus", "9" * 20],
        ["wait", "a", "--timeout", "99999d"],
    ],
    ids=" ".join,
)
def test_number_of_many_digits_is_refused_in_words(words):
    said = CliRunner().invoke(root, words)
    assert said.exit_code in {1, 2}
    assert isinstance(said.exception, SystemExit)
    assert "write" in said.stderr or "is not in the range" in said.stderr


@pytest.mark.parametrize("text", ["", "---\n---\n"])
def test_applying_nothing_is_an_error(tmp_path, text):
    """A pipeline whose first command failed must not end well."""
    at = kubeconfig(tmp_path / "config", {"token": "t"})
    said = CliRunner().invoke(root, ["apply", "--kubeconfig", str(at), "-f", "-"], input=text)
    assert (said.exit_code, said.stdout) == (1, "")
    assert "nothing to apply" in said.stderr


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False), ("false", False)])
def test_a_terminal_has_colours_unless_its_user_wants_none(tmp_path, no_color, coloured):
    """The words of an error, the story and the tables of a run: whatever NO_COLOR is set to, but to nothing."""
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


def test_a_closed_pipe_is_no_failure_for_tables():
    """Rich would end the process with exit code 1: `tfcluster status | head -1` fails under pipefail."""

    class Closed(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    console = output.console()
    console.file = Closed()
    with pytest.raises(BrokenPipeError):
        console.print("a row")


def run(*command, redirection):
    """Run Python, with its output somewhere else."""
    return subprocess.run(
        ["sh", "-c", f'"$0" "$@" {redirection}', sys.executable, *command], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", [["completion", "bash"], ["--help"], ["--version"], ["status", "--help"]])
def test_a_full_disk_is_told_in_one_line(words):
    """No traceback, and no second complaint when Python ends."""
    ended = run("-m", "tfcluster", *words, redirection=">/dev/full")
    assert (ended.returncode, ended.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    "begun",
    [
        "import tfcluster.__main__; os.kill(os.getpid(), signal.SIGINT)",  # while it imports
        "import click, tfcluster.__main__ as m; click.Context.get_help = press; m.main()",
        "import tfcluster.commands.create as c, tfcluster.__main__ as m; c.command.callback = press; m.main()",
    ],
)
def test_ctrl_c_ends_without_a_traceback(begun):
    """At any time, with the exit code that shells have for it."""
    words = "create x --image i" if "create" in begun else "--help"
    program = (
        f"import os, signal, sys; sys.argv = ['tfcluster', *{words!r}.split()]\n"
        f"def press(*_, **__): os.kill(os.getpid(), signal.SIGINT)\n{begun}"
    )
    ended = run("-c", program, redirection="")
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_stdout_that_the_shell_closed_takes_what_is_written():
    """What writes bytes, as logs do, must not stumble over a stream that is not there."""
    program = "import sys, tfcluster.__main__ as m; m.root = lambda **_: sys.stdout.buffer.write(b'a line'); m.main()"
    ended = run("-c", program, redirection=">&-")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_user_and_password_of_curl_are_no_part_of_a_report():
    """In a line of a shell, and as words of a command; the name stays."""
    redaction = Redaction()
    told = [
        redaction.text("curl -u bob:private-1 x; curl --user='bob:private-2' x; wget --proxy-user bob:private-3"),
        str(redaction.object({"command": ["curl", "-u", "bob:private-4", "-x", "http", "--db-pass", "private-5"]})),
    ]
    assert not [one for one in told if "private" in one]
    assert [one.count("bob:") for one in told] == [3, 1]


def test_a_doctor_who_reaches_no_server_says_so_of_a_cluster_too(tmp_path):
    """With a name as without: the checks are printed as JSON, and the exit code is that of a failed check."""
    at = kubeconfig(tmp_path / "config", {"token": "t"})
    said = CliRunner().invoke(root, ["doctor", "digits", "--kubeconfig", str(at), "-o", "json"])
    assert said.exit_code == 1
    checks = {one["name"]: one["verdict"] for one in json.loads(said.stdout)["checks"]}
    assert checks == {"API server": "failed", "cluster": "unknown"}


def test_what_is_refused_was_not_said_to_have_happened(client_world):
    """The words before a change speak of what is to come; a change of nothing is told as such."""
    client_world.declare("digits", {"worker": {"replicas": 1}})
    client_world.await_that(lambda: "status" in (client_world.cluster("digits") or {}))
    assert client_world.cli("resume", "digits").stdout == "digits unchanged\n"
    assert client_world.cli("suspend", "digits", "--dry-run").stdout.startswith("digits suspended (dry run")
    assert "To be deleted: TFCluster digits" in client_world.cli("delete", "digits", "--dry-run").stderr
    assert "worker: its 1 task is replaced. " in client_world.cli("restart", "digits", "--dry-run").stderr


def test_one_task_may_be_a_text(client_world):
    """`logs("digits", "worker/0")` does not ask for the jobs w, o, r and so on."""
    client_world.declare("digits", {"worker": {"replicas": 1}})
    client_world.await_that(lambda: "status" in (client_world.cluster("digits") or {}))
    with client_world.client() as client:
        client.restart("digits", "worker", dry_run=True)
        client_world.await_that(lambda: client_world.at_once(lambda: len(client_world.kube.list("pods"))) == 1)
        assert list(client.logs("digits", "worker/0", tail=0)) == []
    said = client_world.cli("delete", "digits", "--dry-run").stderr
    assert "the pods of its 1 task with their logs, its Service and its views.\n" in said
