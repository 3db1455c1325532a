"""The command ``tfcluster convert``: what it prints where, and its exit codes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.tfjobs import REFUSED, TFJOBS

from tfcluster.commands import convert as command_of_convert
from tfcluster.commands.convert import command
from tfcluster.commands.root import root
from tfcluster.convert import documents
from tfcluster.manifest_text import documents as read

#: Nothing of it is lost.
SOUND = TFJOBS["all roles"].text.partition("    Evaluator:")[0]


def run(*arguments: str, text: str | None = None) -> Result:
    """Run ``tfcluster convert``."""
    return CliRunner().invoke(root, ["convert", *arguments], input=text)


@pytest.mark.parametrize("name", [*TFJOBS])
def test_exit_code_says_whether_something_is_lost(name: str):
    """0 where nothing is lost, 3 where the report names something; the check holds for all."""
    result = run("-f", "-", "--check", text=TFJOBS[name].text)

    assert result.exit_code == TFJOBS[name].code, result.stderr
    assert ("Lost, and what to do:" in result.stderr) == (TFJOBS[name].code == 3)
    assert "  Check: " in result.stderr
    assert "would differ" not in result.stderr
    assert "kind: TFCluster" in result.stdout


@pytest.mark.parametrize("name", [*REFUSED])
def test_refused_prints_nothing(name: str):
    """What is refused leaves stdout empty, so that no half of a file is applied."""
    result = run("-f", "-", text=f"{SOUND}---\n{REFUSED[name][0]}")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "Refused:" in result.stderr


def test_several_files_become_one_stream(tmp_path: Path):
    """Files are joined as documents, whether or not they begin with a separator or end with a line."""
    for name, text in (("a", SOUND), ("b", "---\n" + SOUND.rstrip("\n")), ("c", SOUND)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = [word for name in "abc" for word in ("-f", str(tmp_path / name))]

    assert [one.value["kind"] for one in read(run(*files).stdout.encode())] == ["TFCluster"] * 3


def test_quiet_reports_losses_alone():
    """-q leaves out what is good to know."""
    assert run("-q", "-f", "-", text=SOUND).stderr == ""
    assert "To know" not in run("-q", "-f", "-", text=TFJOBS["a gang"].text).stderr
    assert "schedulingPolicy.queue" in run("-q", "-f", "-", text=TFJOBS["a gang"].text).stderr


def test_same_words_name_all_their_fields():
    """Fields with one reason are told once, and none of them is hidden."""
    stderr = run("-f", "-", text=TFJOBS["fields out of place"].text).stderr

    assert "spec.runPolicy.maxRestarts, spec.tfReplicaSpecs.Worker.replica: a TFJob has no such field" in stderr


def test_misspelt_fields_of_pods_are_named():
    """What is carried over and no pod has is told, since the API server drops it."""
    stderr = run("-f", "-", text=TFJOBS["fields out of place"].text).stderr

    assert "spec.tfReplicaSpecs.Worker.template.spec.containers[0].comand: no pod has this field" in stderr


def test_objects_beside_make_it_lossy():
    """A Service that would clash is a loss, although it is not changed."""
    result = run("-f", "-", text=f"{SOUND}---\nkind: Service\nmetadata: {{name: ranking}}\n")

    assert result.exit_code == 3
    assert "Service ranking: the TFCluster needs this name" in result.stderr


def test_a_difference_fails_the_check(monkeypatch: pytest.MonkeyPatch):
    """If the result would tell a replica something else, the exit code is 1 and nothing is printed."""
    whole = documents.convert

    def with_another_port(manifest: Any) -> Any:
        conversion = whole(manifest)
        conversion.cluster["spec"]["jobs"]["ps"]["port"] = 9
        return conversion

    monkeypatch.setattr(documents, "convert", with_another_port)
    result = run("-f", "-", "--check", text=SOUND)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "Check: TF_CONFIG would differ:" in result.stderr
    assert "ranking-ps-1:9 here" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "name a file with -f FILE"),
        (["-f", "/nowhere.yaml"], 1, "Error: /nowhere.yaml: No such file or directory"),
        (["-f", "/"], 1, "Error: /: Is a directory"),
        (["--from-cluster", "x", "--kubeconfig", "/nowhere"], 1, "Error: "),
    ],
)
def test_what_cannot_be_read_is_said(arguments: list[str], code: int, words: str):
    """Errors are one sentence and the next step, never a traceback."""
    result = run(*arguments)

    assert result.exit_code == code
    assert words in result.stderr


def test_binary_files_are_said_to_be_such(tmp_path: Path):
    """A file that is no text is told as such."""
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")

    assert "is no text in UTF-8" in run("-f", str(tmp_path / "x")).stderr


def test_from_cluster_reads_what_is_there(monkeypatch: pytest.MonkeyPatch):
    """A TFJob of the API server is converted, and the report says that it must go first."""
    (job,) = (one.value for one in read(SOUND.encode()))
    asked = []

    class Api:
        """Answers for one TFJob."""

        server = "https://kubernetes"

        def get(self, resource: Any, name: str) -> Any:
            asked.append((resource.plural, name))
            return {**job, "status": {"startTime": "now"}}

    monkeypatch.setattr(command_of_convert, "api_of", lambda **_: Api())
    result = run("--from-cluster", "ranking")

    assert asked == [("tfjobs", "ranking")]
    assert result.exit_code == 0, result.stderr
    assert "kubectl delete tfjob ranking" in result.stderr
    assert [one.value["metadata"]["name"] for one in read(result.stdout.encode())] == ["ranking"]


def test_examples_of_the_help_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each line of the examples does what it says, on a file of that name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tfjob.yaml").write_text(SOUND, encoding="utf-8")
    lines = re.findall(r"\$ tfcluster convert (.*)", command.get_help(command.make_context("convert", ["-f", "x"])))

    assert lines
    for line in lines:
        result = run(*shlex.split(line.partition(" > ")[0]))
        assert result.exit_code == 0, line
        assert "kind: TFCluster" in result.stdout
