"""Completion: bash asks the program, the program asks the API server, and nothing of that is ever in the way.

An answer that comes too late is left out, so a busy machine is asked again, as a user presses Tab again.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from client.client_world import ClientWorld
from support.waiting import eventually

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a user of a world with two clusters."""
    world = ClientWorld(tmp_path_factory.mktemp("world"))
    world.start()
    world.declare("digits", ps=1, worker=3)
    world.declare("dogs", worker=1)
    yield {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(world.kubeconfig)}
    world.stop()


def output_of(*words: str, env) -> str:
    """Run a program, which must succeed and print nothing to stderr."""
    ran = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout


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
    return output_of("bash", "-c", script, env=environment).split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tfcluster rend", ["render"]),
        ("tfcluster wait d", ["digits", "dogs"]),
        ("tfcluster wait di", ["digits"]),
        ("tfcluster wait --name", ["--namespace"]),
        ("tfcluster wait -n nowhere d", [""]),
        ("tfcluster -n nowhere wait d", [""]),
        ("tfcluster render -o j", ["json"]),
        ("tfcluster logs digits w", ["worker", "worker-0", "worker-1", "worker-2"]),
        ("tfcluster render -f clus", ["-o default", ""]),
    ],
)
def test_bash_completes(environment, line, found):
    eventually(lambda: complete_in_bash(line, environment), lambda said: said == found, what="these are offered")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_ask_the_same(environment, shell):
    words = {"COMP_WORDS": "tfcluster wait di", "COMP_CWORD": "2" if shell == "zsh" else "di"}
    asked = {**environment, **words, "_TFCLUSTER_COMPLETE": f"{shell}_complete"}
    assert f"_TFCLUSTER_COMPLETE={shell}_complete" in output_of("tfcluster", "completion", shell, env=environment)
    found = eventually(lambda: output_of("tfcluster", env=asked), what="something is offered")
    assert ("digits" in found, "dogs" in found) == (True, False)


def test_kubectl_completes_the_plugin(environment):
    def found(*words: str) -> str:
        return output_of("kubectl_complete-tfcluster", *words, env=environment)

    eventually(lambda: found("wait", "d"), lambda said: said == "digits\ndogs\n:4\n", what="both are offered")
    assert found("render", "-f", "") == ":0\n"
    assert {"render", "completion", ":4"} <= {*found("").split()}


def test_unreachable_api_server_gives_empty_completions(tmp_path, environment):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for server in (f"http://127.0.0.1:{silent.getsockname()[1]}", "http://127.0.0.1:1"):
            text = Path(environment["KUBECONFIG"]).read_text()
            kubeconfig = tmp_path / "other"
            kubeconfig.write_text(re.sub(r'"server": "[^"]*"', f'"server": "{server}"', text))
            assert complete_in_bash("tfcluster wait d", {**environment, "KUBECONFIG": str(kubeconfig)}) == [""]
