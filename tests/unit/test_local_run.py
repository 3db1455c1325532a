"""`tfcluster local run`: a manifest's tasks as processes, from their start to the verdict, and nothing left behind."""

from __future__ import annotations

import json
import signal
import stat
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree  # noqa: ICN001 - its name says what it is

import pytest
import yaml
from support.waiting import GUARD, eventually
from unit.local_world import Api, Run, answer, cluster, job, processes_with

Start = Callable[..., Run]
#: Says whom it sees, and ends well.
SEES = """
from tfcluster_resolver import TFClusterResolver
print("sees", TFClusterResolver().cluster_spec().as_dict())
"""
#: Goes on for ever, with a process below it that has left its group and ignores SIGTERM.
LINGERS = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen(["python3", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("lingers", flush=True)
time.sleep(600)
"""
WAITS = "import time; print('waits', flush=True); time.sleep(600)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts runs, which end with the test."""
    made: list[Run] = []

    def make(*objects: Any, folder: str = "", **arguments: Any) -> Run:
        made.append(Run(tmp_path / folder, *objects, **arguments))
        return made[-1]

    yield make
    for run in made:
        run.process.kill()
        run.process.wait(GUARD)


def test_tasks_see_each_other_at_addresses_of_this_machine(start: Start) -> None:
    """A chief and two workers resolve one cluster on 127.0.0.1; the chief's success ends it with exit code 0."""
    run = start(cluster(jobs={"chief": job(SEES), "worker": job(SEES + WAITS, replicas=2)}))

    assert run.end() == 0, run.err
    seen = {line.partition("sees ")[2] for line in run.out.splitlines() if "sees " in line}
    assert len(seen) == 1
    spec = seen.pop()
    assert "'chief': ['127.0.0.1:" in spec
    assert spec.count("127.0.0.1:") == 3
    assert "small succeeded" in run.err
    assert [path for path in run.state.rglob("*") if path.is_file() and ".ports" not in path.parts] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_everything(start: Start, number: int, code: int) -> None:
    """SIGTERM and a closed terminal end all processes, as Ctrl-C does in other tests; the exit code says which."""
    run = start(cluster(jobs={"worker": job(WAITS, replicas=2)}))
    run.await_line("waits")

    run.signal(number)

    assert run.end() == code
    assert list(processes_with(str(run.state))) == []


def test_nothing_outlives_a_run_that_is_killed(start: Start) -> None:
    """After SIGKILL of the run no process of a task is left, whatever its program did to be left alone."""
    run = start(cluster(jobs={"worker": job(LINGERS)}))
    run.await_line("lingers")
    assert len(list(processes_with(str(run.state)))) >= 2

    run.signal(signal.SIGKILL)
    run.end()

    eventually(lambda: list(processes_with(str(run.state))), lambda left: left == [], what="nothing is left")


def test_a_killed_task_heals_at_its_address(start: Start) -> None:
    """`local kill` ends a task's processes; the operator starts it again, and its address stays."""
    program = "import os, time; print('at', os.environ['TFCLUSTER_ADDRESS'], flush=True); time.sleep(600)"
    run = start(cluster(jobs={"worker": job(program, replicas=2)}))
    first = run.await_line("worker-1 | at")

    killed = run.tfcluster("local", "kill", "worker-1")

    assert "killed worker-1: process" in killed.stderr
    told = eventually(lambda: run.out, lambda out: out.count("worker-1 | at") == 2, what="worker 1 starts again")
    assert {line for line in told.splitlines() if "worker-1" in line} == {first}
    assert "worker-1 was killed by signal 9" in run.err
    assert "worker-1 restarts in 1 s" in run.err
    missing = run.tfcluster("local", "kill", "worker-7")
    assert (missing.returncode, "no process of worker-7" in missing.stderr) == (1, True)
    run.signal(signal.SIGINT)
    assert run.end() == 130


def test_other_commands_work_on_a_run(start: Start) -> None:
    """By its kubeconfig a run is scaled, suspended and resumed as any cluster; a resize reaches a program that runs.

    Whoever reaches the API could run programs as this user: nobody is answered without the token, and the files that
    hold it are the user's alone.
    """
    watches = """
from tfcluster_resolver import TFClusterResolver
resolver = TFClusterResolver()
print("watches", flush=True)
for change in resolver.watch():
    print("epoch", change.epoch, "added", len(change.added), flush=True)
"""
    run = start(cluster(jobs={"chief": job(watches), "worker": job(WAITS, replicas=2)}))
    run.await_line("watches")
    api = Api(run)
    for path, headers in (
        ("/api/v1/pods", {}),
        ("/api/v1/pods", {"Authorization": "Bearer x"}),
        ("/x/api/v1/pods", {}),
    ):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            answer(api.address + path, headers=headers)
    assert stat.S_IMODE(api.kubeconfig.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(api.kubeconfig.stat().st_mode) == 0o600

    # A port is shown where the task listens; one that is no task's stays as it is.
    run.await_line("worker-1 | waits")
    at = run.tfcluster("session", "small", "--local", "--task", "worker-1", "--port", "2222", "--port", "6006")
    assert [line.split()[0].rpartition(":")[2] for line in at.stdout.splitlines()] == [
        run.err.partition("worker-1 starts at 127.0.0.1:")[2].split()[0],
        "6006",
    ]
    assert "TensorFlow's own" not in at.stderr

    # What is applied is judged as by a real API server, and what means nothing here is skipped.
    wrong, policy = run.folder / "wrong.yaml", {"apiVersion": "policy/v1", "kind": "X", "metadata": {"name": "x"}}
    wrong.write_text(yaml.safe_dump_all([cluster(jobs={"worker": job(WAITS, replicas=-1)}), policy]))
    refused = run.tfcluster("apply", "--local", "-f", str(wrong))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "skipped, because it means nothing on this machine: X x" in refused.stderr
    assert "spec.jobs.worker.replicas: -1 is too little: write 0 at least" in refused.stderr

    api.patch({"jobs": {"worker": {"replicas": 4}}})
    run.await_line("epoch 2 added 2")
    run.await_line("worker-3 | waits")
    api.patch({"suspend": True})
    eventually(api.pods, lambda pods: pods == [], what="no pod is left of a suspended cluster")
    assert list(processes_with(str(run.state), "TFCLUSTER_JOB=worker")) == []
    api.patch({"suspend": False})
    eventually(lambda: run.out.count("worker-3 | waits"), lambda count: count == 2, what="worker 3 runs again")

    run.signal(signal.SIGINT)
    assert run.end() == 130


def test_two_runs_share_no_port_and_one_name_is_taken_once(start: Start, tmp_path: Path) -> None:
    """Ports are held over runs, also while nobody listens; what is in use otherwise is passed over."""
    says = "import os; print('at', os.environ['TFCLUSTER_ADDRESS'], flush=True)\n" + WAITS
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    one = start(cluster("one", jobs={"worker": job(says, replicas=2)}), folder="one", env=state)
    seen = {one.await_line(f"worker-{index} | at").rpartition(":")[2] for index in (0, 1)}
    two = start(cluster("two", jobs={"worker": job(says, replicas=2)}), folder="two", env=state)
    seen |= {two.await_line(f"worker-{index} | at").rpartition(":")[2] for index in (0, 1)}
    again = start(cluster("one", jobs={"worker": job(says)}), folder="again", env=state)

    assert len(seen) == 4
    assert again.end() == 1
    assert "a run named one is there already" in again.err
    listed = json.loads(one.tfcluster("local", "list", "-o", "json", state=state).stdout)
    assert [(each["name"], each["clusters"]) for each in listed] == [("one", ["one"]), ("two", ["two"])]
    for run in (one, two):
        run.signal(signal.SIGINT)
        assert run.end() == 130


def test_what_a_killed_run_left_is_cleaned(start: Start) -> None:
    """The folder of a run that was killed is no run, and goes when the next one begins; looking deletes nothing."""
    run = start(cluster(jobs={"worker": job(WAITS)}))
    run.await_line("waits")
    folder = run.state / "tfcluster" / "local" / "small"
    assert folder.is_dir()
    run.signal(signal.SIGKILL)
    run.end()

    assert folder.is_dir()
    listed = run.tfcluster("local", "list")
    assert "nothing runs here" in listed.stderr
    assert folder.is_dir()
    other = start(cluster("other", jobs={"worker": job("pass")}))
    assert other.end() == 0
    assert not folder.exists()


def test_a_failed_cluster_fails_the_run_and_its_report(start: Start, tmp_path: Path) -> None:
    """The exit code is 1; the report has a case for each task, what it said last, and the verdict."""
    report = tmp_path / "report.xml"
    jobs = {"chief": job("print('tried ' + chr(0)); raise SystemExit('boom')"), "worker": job(WAITS)}
    declared = cluster(jobs={name: {**one, "restartPolicy": "Never"} for name, one in jobs.items()})
    run = start(declared, options=("--junit", str(report)))

    assert run.end() == 1
    assert "small failed" in run.err
    cases = {case.get("name"): case for case in cases_of(report)}
    assert set(cases) == {"small-chief-0", "small-worker-0", "verdict"}
    assert "boom" in cases["small-chief-0"].find("failure").get("message")
    assert "tried \ufffd" in cases["small-chief-0"].find("system-out").text
    assert cases["small-worker-0"].find("failure") is None
    assert "chief" in cases["verdict"].find("failure").get("message")


def test_a_run_that_takes_too_long_is_ended(start: Start, tmp_path: Path) -> None:
    """The exit code is 124, and the report says that it is not over."""
    report = tmp_path / "report.xml"
    options = ("--timeout", "0.5s", "--junit", str(report), "-q")
    run = start(cluster(jobs={"worker": job(WAITS)}), options=options)

    assert run.end() == 124
    assert run.out == ""
    assert [case.get("name") for case in cases_of(report) if case.find("failure") is not None] == ["verdict"]


def test_a_missing_package_is_named_with_the_interpreter(start: Start) -> None:
    """The user learns once which interpreter the tasks have, and how to choose another; a bare container serves."""
    bare = {"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    beside = job(WAITS)
    side = {"name": "side", "image": "b", "command": ["sh", "-c", "exit 3"]}
    beside["template"]["spec"]["containers"].append(side)
    run = start(cluster(jobs={"chief": job("import not_installed_here"), "ps": bare, "worker": beside}))

    for what in ("not_installed_here", "TensorFlow"):
        words = f"{what} is not installed for {sys.executable}: install it there, or pass --python PATH"
        eventually(lambda words=words: run.err.count(words), lambda count: count == 1, what=words)
    eventually(lambda: run.err, lambda err: "chief-0 starts again" in err, what="the chief starts again")
    assert run.err.count("not_installed_here is not installed") == 1
    # A container that fails beside others that run on is told of, too, once.
    eventually(
        lambda: run.err.count("worker-0/side ended with exit code 3"), lambda count: count == 1, what="it is told"
    )
    run.signal(signal.SIGINT)
    assert run.end() == 130


def test_a_run_whose_output_nobody_reads_ends(start: Start) -> None:
    """`tfcluster local run … | head` ends everything, as other programs do."""
    chatty = "import time\nwhile True: print('more', flush=True); time.sleep(0.01)"
    run = start(cluster(jobs={"worker": job(chatty)}), piped=True)
    assert run.process.stdout.readline() == b"worker-0 | more\n"

    run.process.stdout.close()

    assert run.end() == 128 + signal.SIGPIPE
    assert list(processes_with(str(run.state))) == []


def test_kept_logs_and_volumes_stay(start: Start) -> None:
    """With --keep the folder stays until the next run of that name, without what reaches a server that is gone.

    What --entrypoint names runs in place of the image's own, with the arguments of the manifest.
    """
    spec = {
        "containers": [
            {
                "name": "a",
                "image": "b",
                "args": ["/kept/x", "told"],
                "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
            }
        ],
        "volumes": [{"name": "kept", "persistentVolumeClaim": {"claimName": "mine"}}],
    }
    program = "a=python -c 'import sys; print(sys.argv[2], file=open(sys.argv[1], chr(119))); print(\"wrote\")'"
    run = start(cluster(jobs={"chief": {"template": {"spec": spec}}}), options=("--keep", "--entrypoint", program))

    assert run.end() == 0, run.err + run.out
    folder = run.state / "tfcluster" / "local" / "small"
    assert (folder / "claims" / "default" / "mine" / "x").read_text() == "told\n"
    assert "wrote" in (folder / "logs" / "small-chief-0" / "a.log").read_text()
    assert not (folder / "kubeconfig").exists()
    assert "nothing runs here" in run.tfcluster("local", "list").stderr
    assert folder.exists()


def cases_of(report: Path) -> list[ElementTree.Element]:
    """Give the test cases of a report."""
    return list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 - it is our own
