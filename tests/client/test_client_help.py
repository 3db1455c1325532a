"""Every command of `tfcluster` says in its help how it is used, and what it says works."""

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from client.client_world import ClientWorld
from support.waiting import GUARD

from tfcluster.commands.root import COMMANDS, root

FILES = Path(__file__).parent / "client_files"


def commands() -> Iterator[tuple[str, click.Command]]:
    for names in COMMANDS.values():
        for name in names:
            command = root.get_command(click.Context(root), name)
            assert command is not None, name
            inner = getattr(command, "commands", None)
            yield from ((f"{name} {word}", one) for word, one in inner.items()) if inner else [(name, command)]


def help_of(command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name="x", terminal_width=100))


def examples() -> Iterator[str]:
    """Give each line of an example that a user would type."""
    for _, command in commands():
        yield from re.findall(r"^\s*\$ (tfcluster .*?)\s*(?:  #.*)?$", help_of(command), re.MULTILINE)


#: What does not end by itself: it is left to begin, and then interrupted.
LASTING = re.compile(
    r"^tfcluster (logs .*(-f|--follow)|events .*(-f|--follow)|status .*(--watch|-w)|wait .* finished"
    r"|port-forward|local run)"
)
#: What ends with something else than 0 as its example stands in the help.
OTHERWISE = {"diff": {0, 1}, "convert": {0, 3}, "doctor": {0, 1}}
#: These examples need more than a cluster: test_local_run.py runs them.
ELSEWHERE = ({"local", "kill"}, {"local", "delete"})


def test_help_has_an_example_and_lists_every_command() -> None:
    for name, command in commands():
        example = rf"^\s*Examples:\n(.*\n)*?\s*\$ tfcluster {name}\b"
        assert re.search(example, help_of(command), re.MULTILINE), name
    shown = CliRunner().invoke(root, ["--help"], terminal_width=120).output
    for summaries in COMMANDS.values():
        for name, summary in summaries.items():
            assert re.search(rf"^  {name} +{re.escape(summary)}$", shown, re.MULTILINE), name
            command = root.get_command(click.Context(root), name)
            assert command is not None
            assert command.get_short_help_str(200) == summary


def test_help_does_not_import_commands_or_libraries() -> None:
    program = (
        "import sys; from tfcluster.commands.root import root; root(['--help'], standalone_mode=False); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'kubernetes', 'aiohttp', 'yaml', 'rich'}))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == ""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[ClientWorld]:
    found = ClientWorld(tmp_path_factory.mktemp("world"))
    found.start()
    found.logs.update({f"digits-{task}": "a line\n" for task in ("chief-0", "ps-0", "worker-0", "worker-1")})
    yield found
    found.stop()


@pytest.fixture
def place(world: ClientWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that examples name, and the cluster digits as its file has it, which runs."""
    for file in FILES.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "examples").symlink_to(FILES.parents[2] / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    again = ["wait", "digits", "--for", "resized", "--timeout", f"{GUARD:g}s"]
    for words in (["apply", "-f", "digits.yaml"], ["resume", "digits"], again):
        done = CliRunner().invoke(root, words)
        assert done.exit_code == 0, done.output


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("line", [one for one in examples() if not any(words <= {*one.split()} for words in ELSEWHERE)])
def test_an_example_works(line: str) -> None:
    words = shlex.split(re.split(r" [|>] ?", line)[0])[1:]
    if LASTING.match(line):
        begin_and_interrupt(words)
        return
    done = CliRunner().invoke(root, words, input="y\n")
    assert done.exit_code in OTHERWISE.get(words[0], {0}), done.output


def begin_and_interrupt(words: list[str]) -> None:
    """Press Ctrl-C until the command ends: Python drops a KeyboardInterrupt during a garbage collection."""
    with subprocess.Popen(
        [sys.executable, "-m", "tfcluster", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], GUARD)[0], f"{words} said nothing"
        first = process.stdout.readline()
        for _ in range(4):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                rest = process.communicate(timeout=GUARD / 4)[0]
                break
        else:
            process.kill()
            pytest.fail(f"{words} does not end at Ctrl-C")
    assert process.returncode in {0, 130}, (first + rest).decode()
