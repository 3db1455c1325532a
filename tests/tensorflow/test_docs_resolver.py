"""The guide of the resolver and related pages: each snippet of Python runs, and prints what its page shows.

The word after the language says where a snippet runs: without one, any process in the chief's pod; ``as=chief`` the
process that is the chief; ``as=workers`` those of all equal workers; ``as=outside`` one that is not a task;
``e2e=TEST`` names the test for a snippet that cannot run here. The manifests and the kubectl of the other pages are for
tests/server/test_docs_pages.py.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator

import pytest
from fork_server import run
from loopback_cluster import DEADLINE, ROOT, LoopbackCluster, free_ports

sys.path.append(str(ROOT / "tests"))

from support.guide import Snippet, agrees, snippets

GUIDE = ROOT / "docs" / "how-to" / "write-a-program.md"
OTHERS = [ROOT / "docs" / "explanation" / "concepts.md", *sorted({*GUIDE.parent.glob("*.md")} - {GUIDE})]
ALL = [
    *snippets(GUIDE),
    *(one for page in OTHERS for one in snippets(page) if one.language == "python" or one.place == "as=chief"),
]
#: Ends a connected process, which TensorFlow's threads could otherwise keep alive.
END = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def those(language: str, place: str) -> list[Snippet]:
    return [one for one in ALL if (one.language, one.place) == (language, place)]


def test_every_snippet_has_a_place():
    """No snippet is left out: each is of a kind that a test runs, or names an existing test of ours."""
    places = {"python": {"", "as=chief", "as=workers", "as=outside"}, "console": {"", "as=chief"}}
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "e2e").glob("test_*.py"))
    for snippet in ALL:
        if snippet.proof("server"):
            continue  # tests/server/test_docs_pages.py looks at it
        if snippet.proof():
            assert f"\ndef {snippet.proof()}(" in tests, f"{snippet}"
        else:
            assert snippet.place in places.get(snippet.language, ()), f"{snippet}"


#: Runs each program of a list in a separate namespace, and prints as JSON what each printed.
RUN_EACH = """
import contextlib, io, json, os, sys
told = []
for text in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "<guide>", "exec"), {"__name__": "__main__"})
    told.append(printed.getvalue().splitlines())
print(json.dumps(told), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """The cluster of the guide: a chief, two workers and a ps, which serve, and two GPUs granted to each worker."""
    cluster = LoopbackCluster(
        tmp_path_factory.mktemp("guide"),
        {"chief": 1, "worker": 2, "ps": 1},
        filters={"worker": ("/job:ps", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
        limits={"worker": {"nvidia.com/gpu": 2}},
    )
    cluster.serve_all("worker", "ps")
    yield cluster
    cluster.end()


def check(snippet: Snippet, printed: list[str]) -> None:
    assert agrees(printed, snippet.printed()), f"{snippet} printed\n" + "\n".join(printed)


def test_snippets_that_only_read(guided):
    readers = those("python", "")

    done = guided.run("chief", 0, "-c", RUN_EACH, json.dumps([one.text for one in readers]))

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(readers) == len(told) > 5
    for snippet, printed in zip(readers, told, strict=True):
        check(snippet, printed)


@pytest.mark.parametrize("snippet", those("python", "as=chief"), ids=str)
def test_snippet_of_the_chief(guided, tmp_path, snippet):
    text = snippet.text.replace('"/checkpoints"', repr(str(tmp_path)))
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda _: str(free_ports(1)[0]), text)
    check(snippet, guided.program(text + END).splitlines())


@pytest.mark.parametrize("snippet", those("python", "as=outside"), ids=str)
def test_snippet_of_no_task(guided, make_cluster, snippet):
    """A snippet of a coordinator outside of the ClusterSpec runs in a process that has only the view."""
    chiefless = make_cluster(jobs={"worker": 2, "ps": 1})
    chiefless.addresses = {job: tasks for job, tasks in guided.addresses.items() if job != "chief"}
    chiefless.publish(epoch=2)
    environment = {
        name: value for name, value in guided.environment("chief", 0).items() if not name.startswith("TFCLUSTER_")
    }

    environment["TFCLUSTER_DIR"] = str(chiefless.folder)
    done = run(["-c", snippet.text + END], env=environment, timeout=DEADLINE)

    assert done.returncode == 0, done.stderr[-6000:] + guided.logs()
    check(snippet, done.stdout.splitlines())


@pytest.mark.parametrize("snippet", those("python", "as=workers"), ids=str)
def test_snippet_of_equal_workers(make_cluster: Callable[..., LoopbackCluster], snippet):
    cluster = make_cluster(jobs={"worker": 2})
    workers = [cluster.start("worker", index, "-c", snippet.text) for index in (0, 1)]
    for worker in workers:
        printed, _ = worker.communicate(timeout=DEADLINE)
        assert worker.returncode == 0, cluster.logs()
        check(snippet, printed.splitlines())


@pytest.mark.parametrize("snippet", [*those("console", ""), *those("console", "as=chief")], ids=str)
def test_command_of_the_guide(guided, snippet):
    """A command runs as the chief, succeeds, and prints the lines that the guide shows."""
    for command, told in snippet.commands():
        program, *words = shlex.split(command)
        assert program == "python"

        words = [sys.executable if word == "python" else word for word in words]
        done = guided.run("chief", 0, *words)

        assert done.returncode == 0, done.stdout + done.stderr
        assert agrees(done.stdout.splitlines(), told), f"{snippet}: {command}\n{done.stdout}"
