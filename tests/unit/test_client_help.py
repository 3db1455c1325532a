"""Every command of `tfcluster` says in its help how it is used, and what it says works."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from unit.client_world import ClientWorld

from tfcluster.commands.root import COMMANDS, root

FILES = Path(__file__).parent / "client_files"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Give each command and each command in a group."""
    for names in COMMANDS.values():
        for name in names:
            command = root.get_command(click.Context(root), name)
            assert command is not None, name
            inner = getattr(command, "commands", None)
            if inner is None:
                yield name, command
            else:
                yield from ((f"{name} {word}", one) for word, one in inner.items())


def help_of(command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name="x", terminal_width=100))


def examples() -> Iterator[str]:
    """Give each line of an example that a user would type."""
    for _, command in commands():
        yield from re.findall(r"^\s*\$ (tfcluster .*?)\s*(?:  #.*)?$", help_of(command), re.MULTILINE)


#: What does not end by itself: it is left to print something, and then interrupted.
LASTING = re.compile(
    r"^tfcluster (logs .*(-f|--follow)|events .*(-f|--follow)|status .*(--watch|-w)|session |local run)"
)
#: What ends with something else than 0 as its example stands in the help, and why.
OTHERWISE = {"diff": {0, 1}, "convert": {0, 3}, "doctor": {0, 1}, "local": {0, 1}}


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_help_has_an_example(name: str, command: click.Command) -> None:
    """A user who asks for help sees a line to type."""
    assert re.search(rf"^\s*Examples:\n(.*\n)*?\s*\$ tfcluster {name}\b", help_of(command), re.MULTILINE)


def test_root_lists_every_command() -> None:
    """`tfcluster --help` names each command with a sentence."""
    shown = CliRunner().invoke(root, ["--help"], terminal_width=120).output

    for names in COMMANDS.values():
        for name in names:
            assert re.search(rf"^  {name} +[A-Z`].*\.$", shown, re.MULTILINE), name


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[ClientWorld]:
    """One control plane for all examples."""
    found = ClientWorld(tmp_path_factory.mktemp("world"))
    found.start()
    yield found
    found.stop()


@pytest.mark.parametrize("line", list(examples()))
def test_an_example_works(line: str, world: ClientWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed as it stands, beside the files that it names, an example does what it should."""
    for file in FILES.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if world.cluster("digits") is None:
        manifest = tmp_path / "digits.yaml"
        assert CliRunner().invoke(root, ["apply", "-f", str(manifest)]).exit_code == 0
    world.await_condition("digits", "Ready")
    words = shlex.split(re.split(r" [|>] ?", line)[0])[1:]
    if LASTING.match(line):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "tfcluster", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[0]
        assert process.returncode in {0, 130}, (first + rest).decode()
        return
    done = CliRunner().invoke(root, words, input="y\n")

    assert done.exit_code in OTHERWISE.get(words[0], {0}), done.output
