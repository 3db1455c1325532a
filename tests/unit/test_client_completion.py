"""Completion: bash asks the program, the program asks the API server, and nothing of that is ever in the way."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from unit.client_world import ClientWorld

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a user of a world with two clusters."""
    world = ClientWorld(tmp_path_factory.mktemp("world"))
    world.start()
    world.declare("digits", {"ps": {}, "worker": {"replicas": 3}})
    world.declare("dogs", {"worker": {}})
    yield {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(world.kubeconfig)}
    world.stop()


def complete_in_bash(line: str, environment) -> list[str]:
    """Type a line and press Tab."""
    words = line.split(" ")
    script = f"""
        compopt() {{ echo "$@"; }}
        source <(tfcluster completion bash)
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _tfcluster_completion tfcluster
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tfcluster rend", ["render"]),
        ("tfcluster wait d", ["digits", "dogs"]),
        ("tfcluster wait di", ["digits"]),
        ("tfcluster wait --name", ["--namespace"]),
        ("tfcluster wait -n nowhere d", [""]),
        ("tfcluster render -o j", ["json"]),
        (f"tfcluster render -f {EXAMPLES}/parameter-server.yaml --task w", ["worker-0", "worker-1"]),
        ("tfcluster render -f clus", ["-o default", ""]),
        ("tfcluster render -f nowhere.yaml --task w", [""]),
    ],
)
def test_bash_completes(environment, line, found):
    """Commands, options, values, names of clusters and tasks; of files it knows itself."""
    assert complete_in_bash(line, environment) == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_ask_the_same(environment, shell):
    """Their scripts call the program in this way, which prints a type, a value and words."""
    words = {"COMP_WORDS": "tfcluster wait di", "COMP_CWORD": "2" if shell == "zsh" else "di"}
    asked = {**environment, **words, "_TFCLUSTER_COMPLETE": f"{shell}_complete"}

    script = subprocess.run(
        ["tfcluster", "completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    ran = subprocess.run(["tfcluster"], env=asked, capture_output=True, text=True, check=True)

    assert f"_TFCLUSTER_COMPLETE={shell}_complete" in script.stdout
    assert "digits" in ran.stdout
    assert "dogs" not in ran.stdout
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["wait", "d"], "digits\ndogs\n:4\n"),
        (["render", "-f", ""], ":0\n"),
        ([""], None),
    ],
)
def test_kubectl_is_told_what_its_plug_in_completes(environment, words, found):
    """By cobra's protocol: a candidate a line, then a directive."""
    ran = subprocess.run(
        ["kubectl_complete-tfcluster", *words], env=environment, capture_output=True, text=True, check=True
    )

    assert ran.stderr == ""
    if found is None:
        assert {"render", "completion", ":4"} <= {*ran.stdout.split()}
    else:
        assert ran.stdout == found


def test_no_api_server_completes_nothing_and_says_nothing(tmp_path, environment):
    """There is none, or it takes a connection and never answers: the shell has its prompt soon."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for server in (f"http://127.0.0.1:{silent.getsockname()[1]}", "http://127.0.0.1:1"):
            text = Path(environment["KUBECONFIG"]).read_text()
            kubeconfig = tmp_path / "other"
            kubeconfig.write_text(re.sub(r'"server": "[^"]*"', f'"server": "{server}"', text))
            assert complete_in_bash("tfcluster wait d", {**environment, "KUBECONFIG": str(kubeconfig)}) == [""]
