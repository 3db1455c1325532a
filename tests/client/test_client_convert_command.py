"""The command ``tfcluster convert``: what it prints where, and its exit codes."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.tfjobs import LOSSY, REFUSED, TFJOBS

from tfcluster.commands import convert
from tfcluster.commands.convert import convert_command
from tfcluster.commands.root import root
from tfcluster.convert import conversion
from tfcluster.manifest.yaml import documents as read

#: Nothing of it is lost.
SOUND = TFJOBS["all roles"].partition("    Evaluator:")[0]


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(root, ["convert", *arguments], input=text)


@pytest.mark.parametrize("name", [*TFJOBS])
def test_exit_code_says_whether_something_is_lost(name: str):
    result = run("-f", "-", "--check", text=TFJOBS[name])
    assert result.exit_code == (3 if name in LOSSY else 0), result.stderr
    assert ("Lost, and what to do:" in result.stderr) == (name in LOSSY)
    assert "kind: TFCluster" in result.stdout


@pytest.mark.parametrize("name", [*REFUSED])
def test_rejected_input_leaves_stdout_empty(name: str):
    result = run("-f", "-", text=f"{SOUND}---\n{REFUSED[name][0]}")
    assert (result.exit_code, result.stdout, "Rejected:" in result.stderr) == (1, "", True)


@pytest.mark.parametrize("text", ["", "# nothing\n---\n", "kind: Pod\n"])
def test_input_without_tfjobs_is_rejected(text: str):
    result = run("-f", "-", text=text)
    assert (result.exit_code, result.stdout, "no TFJob found" in result.stderr) == (1, "", True)


def test_several_files_become_one_stream(tmp_path: Path):
    for name, text in (("a", SOUND), ("b", "---\n" + SOUND.rstrip("\n")), ("c", SOUND)):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    files = [word for name in "abc" for word in ("-f", str(tmp_path / f"{name}.yaml"))]
    for words in (files, ("-f", str(tmp_path))):
        assert [one.value["kind"] for one in read(run(*words).stdout.encode())] == ["TFCluster"] * 3


def test_report_lists_losses_and_quiet_lists_only_those():
    assert run("-q", "-f", "-", text=SOUND).stderr == ""
    stderr = run("-q", "-f", "-", text=TFJOBS["a gang"]).stderr
    assert ("To know" in stderr, "schedulingPolicy.queue" in stderr) == (False, True)

    stderr = run("-f", "-", text=TFJOBS["fields out of place"]).stderr
    unknown = "spec.runPolicy.maxRestarts, spec.tfReplicaSpecs.Worker.replica"
    assert f"{unknown}: neither a TFJob nor a TFCluster has this field" in stderr
    assert "spec.tfReplicaSpecs.Worker.template.spec.containers[0].comand: no pod has this field" in stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "name a file with -f FILE"),
        (["-f", "/nowhere.yaml"], 1, "  /nowhere.yaml: No such file or directory"),
        (["-f", "."], 1, "no file in this folder ends in"),
        (["--from-cluster", "x", "--kubeconfig", "/nowhere"], 1, "Error: "),
        (["-f", "binary"], 1, "not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_said(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\xff\xfe\x00")
    result = run(*arguments)
    assert (result.exit_code, words in result.stderr) == (code, True)


def test_from_cluster_reads_what_is_there(monkeypatch: pytest.MonkeyPatch):
    (job,) = (one.value for one in read(SOUND.encode()))
    asked = []

    def get(resource: Any, name: str) -> Any:
        asked.append((resource.plural, name))
        return {**job, "status": {"startTime": "now"}}

    api = SimpleNamespace(server="https://kubernetes", get=get)
    monkeypatch.setattr(convert, "api_of", lambda **_: api)
    result = run("--from-cluster", "ranking")
    assert asked == [("tfjobs", "ranking")]
    assert result.exit_code == 0, result.stderr
    assert "kubectl delete tfjob ranking" in result.stderr
    assert [one.value["metadata"]["name"] for one in read(result.stdout.encode())] == ["ranking"]


def test_examples_of_the_help_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tfjob.yaml").write_text(SOUND, encoding="utf-8")
    lines = re.findall(
        r"\$ tfcluster convert (.*)", convert_command.get_help(convert_command.make_context("convert", ["-f", "x"]))
    )
    assert lines
    for line in lines:
        result = run(*shlex.split(line.partition(" > ")[0]))
        assert result.exit_code == 0, line
        assert "kind: TFCluster" in result.stdout


def test_difference_fails_the_check(monkeypatch: pytest.MonkeyPatch):
    whole = conversion.convert

    def with_another_port(manifest: Any) -> Any:
        found = whole(manifest)
        found.cluster["spec"]["jobs"]["ps"]["port"] = 9
        return found

    monkeypatch.setattr(conversion, "convert", with_another_port)
    result = run("-f", "-", "--check", text=SOUND)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Check: TF_CONFIG would differ" in result.stderr
    assert "ranking-ps-1:9 here" in result.stderr
