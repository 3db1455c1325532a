"""`tfcluster local run`: a manifest's tasks as processes, from their start to the verdict, and nothing left behind."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from local.local_world import Api, Run, answer, cluster, job, processes_with
from support.waiting import GUARD, eventually

from tfcluster.local import session

Start = Callable[..., Run]
WAITS = "import time; print('waits', flush=True); time.sleep(600)"
#: Prints at which address it is, and goes on for ever.
AT = "import os; print('at', os.environ['TFCLUSTER_ADDRESS'], flush=True)\n" + WAITS
#: Prints whom it sees.
SEES = "from tfcluster_resolver import TFClusterResolver as R; print('sees', R().cluster_spec().as_dict())\n"
#: Goes on for ever, with a process below it that has left its group and ignores SIGTERM.
LINGERS = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen(["python3", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("lingers", flush=True)
time.sleep(600)
"""
WATCHES = """
from tfcluster_resolver import TFClusterResolver
resolver = TFClusterResolver()
print("watches", flush=True)
for change in resolver.watch():
    print("epoch", change.epoch, "added", len(change.added), flush=True)
"""
ENDS_WITH_A_FLAG = """
import pathlib, time
print("waits", flush=True)
while not pathlib.Path({flag!r}).exists(): time.sleep(0.02)
print("much " * 100_000, *range(10_000), sep="\\n")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs, which end with the test."""
    made: list[Run] = []

    def make(*objects: Any, folder: str = "run", **arguments: Any) -> Run:
        made.append(Run(tmp_path / folder, *objects, **arguments))
        return made[-1]

    yield make
    for run in made:
        run.process.kill()
        run.process.wait(GUARD)


def end_by(run: Run, number: int) -> None:
    """A signal ends a run and all of its processes."""
    run.signal(number)
    assert run.end() == 128 + number
    assert list(processes_with(str(run.state))) == []


def test_tasks_see_each_other_at_addresses_of_this_machine(start: Start) -> None:
    run = start(cluster(jobs={"chief": job(SEES), "worker": job(SEES + WAITS, replicas=2)}))
    assert run.end() == 0, run.err
    (spec,) = {line.partition("sees ")[2] for line in run.out.splitlines() if "sees " in line}
    assert "'chief': ['127.0.0.1:" in spec
    assert spec.count("127.0.0.1:") == 3
    assert "small succeeded" in run.err
    assert [path for path in run.state.rglob("*") if path.is_file()] == []


def test_a_run_that_is_killed_leaves_a_folder_that_the_next_one_cleans(start: Start) -> None:
    run = start(cluster(jobs={"worker": job(LINGERS)}))
    run.await_line("lingers")
    assert len(list(processes_with(str(run.state)))) >= 2
    folder = run.state / "tfcluster" / "local" / "small"
    run.signal(signal.SIGKILL)
    run.end()
    eventually(lambda: list(processes_with(str(run.state))), lambda left: left == [], what="nothing is left")
    assert "nothing is running" in run.tfcluster("local", "list").stderr
    assert folder.is_dir(), "looking deletes nothing"
    assert start(cluster("other", jobs={"worker": job("pass")})).end() == 0
    assert not folder.exists()


def test_a_killed_task_heals_at_its_address(start: Start) -> None:
    run = start(cluster(jobs={"worker": job(AT, replicas=2)}))
    first = run.await_line("worker-1 | at")
    assert "killed worker-1: process" in run.tfcluster("local", "kill", "worker-1").stderr
    told = eventually(lambda: run.out, lambda out: out.count("worker-1 | at") == 2, what="worker 1 starts again")
    assert {line for line in told.splitlines() if "worker-1 | at" in line} == {first}
    assert "worker-1 was killed by signal 9" in run.err
    assert "worker-1 restarts in 1 s" in run.err
    missing = run.tfcluster("local", "kill", "worker-7")
    assert (missing.returncode, "no process of worker-7" in missing.stderr) == (1, True)
    end_by(run, signal.SIGTERM)


def test_other_commands_work_on_a_run(start: Start) -> None:
    run = start(cluster(jobs={"chief": job(WATCHES), "worker": job(WAITS, replicas=2)}))
    run.await_line("watches")
    api = Api(run)
    # A client of the API could run programs as this user: it needs the token.
    for path, headers in (("", {}), ("", {"Authorization": "Bearer x"}), ("/x", {})):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            answer(f"{api.address}{path}/api/v1/pods", headers=headers)
    files = (api.kubeconfig.parent, api.kubeconfig)
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o700, 0o600]

    run.await_line("worker-1 | waits")
    at = run.tfcluster("port-forward", "small", "--local")
    assert (at.returncode, "listen on this machine themselves" in at.stderr) == (1, True)

    # What is applied is judged as by a real API server, and what means nothing here is skipped.
    wrong, policy = run.folder / "wrong.yaml", {"apiVersion": "policy/v1", "kind": "X", "metadata": {"name": "x"}}
    wrong.write_text(yaml.safe_dump_all([cluster(jobs={"worker": job(WAITS, replicas=-1)}), policy]))
    refused = run.tfcluster("apply", "--local", "-f", str(wrong))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "skipped (not used locally): X x" in refused.stderr
    assert "spec.jobs.worker.replicas: -1 is too little: write 0 at least" in refused.stderr

    api.patch({"jobs": {"worker": {"replicas": 4}}})
    run.await_line("epoch 2 added 2")
    run.await_line("worker-3 | waits")
    api.patch({"suspend": True})
    eventually(api.pods, lambda pods: pods == [], what="no pod is left of a suspended cluster")
    assert list(processes_with(str(run.state), "TFCLUSTER_JOB=worker")) == []
    api.patch({"suspend": False})
    eventually(lambda: run.out.count("worker-3 | waits"), lambda count: count == 2, what="worker 3 runs again")
    end_by(run, signal.SIGHUP)


def test_a_name_of_a_run_is_taken_once(start: Start, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    workers = {"worker": job(AT, replicas=2)}
    runs = [start(cluster(name, jobs=workers), folder=name, env=state) for name in ("one", "two")]
    for run in runs:
        run.await_line("worker-0 | at")
    again = start(cluster("one", jobs=workers), folder="again", env=state)
    assert (again.end(), "a run named one is there already" in again.err) == (1, True)
    listed = json.loads(again.tfcluster("local", "list", "-o", "json", state=state).stdout)
    assert [(each["name"], each["clusters"]) for each in listed] == [("one", ["one"]), ("two", ["two"])]
    for run in runs:
        end_by(run, signal.SIGINT)


def test_a_failed_cluster_fails_the_run(start: Start) -> None:
    jobs = {"chief": job("print('tried ' + chr(0)); raise SystemExit('boom')"), "worker": job(WAITS)}
    declared = cluster(jobs={name: {**one, "restartPolicy": "Never"} for name, one in jobs.items()})
    run = start(declared)
    assert (run.end(), "small failed" in run.err) == (1, True)


def test_a_run_that_takes_too_long_is_ended(start: Start) -> None:
    run = start(cluster(jobs={"worker": job(WAITS)}), options=("--timeout", "0.5s", "-q"))
    assert (run.end(), run.out) == (124, "")


def test_a_missing_package_is_named_with_the_interpreter(start: Start) -> None:
    bare = {"taskServer": True, "replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    beside = job(WAITS)
    side = {"name": "side", "image": "b", "command": ["sh", "-c", "exit 3"]}
    beside["template"]["spec"]["containers"].append(side)
    run = start(cluster(jobs={"chief": job("import not_installed_here"), "ps": bare, "worker": beside}))

    def await_once(words: str) -> None:
        eventually(lambda: run.err.count(words), lambda count: count == 1, what=words)

    for what in ("not_installed_here", "TensorFlow"):
        await_once(f"{what} is not installed for {sys.executable}: install it there, or pass --python PATH")
    eventually(lambda: run.err, lambda err: "chief-0 starts again" in err, what="the chief starts again")
    assert run.err.count("not_installed_here is not installed") == 1
    await_once("worker-0/side ended with exit code 3")
    end_by(run, signal.SIGINT)


def test_a_run_whose_output_is_no_longer_read_ends(start: Start) -> None:
    chatty = "import time\nwhile True: print('more', flush=True); time.sleep(0.01)"
    run = start(cluster(jobs={"worker": job(chatty)}), piped=True)
    assert run.process.stdout.readline() == b"worker-0 | more\n"
    run.process.stdout.close()
    assert run.end() == 128 + signal.SIGPIPE
    assert list(processes_with(str(run.state))) == []


def test_a_volume_survives_its_run_until_it_is_deleted(start: Start) -> None:
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    container = {"name": "a", "image": "b", "args": ["/kept/x", "told"], "volumeMounts": mounts}
    volumes = [{"name": "kept", "persistentVolumeClaim": {"claimName": "mine"}}]
    declared = cluster(jobs={"chief": {"template": {"spec": {"containers": [container], "volumes": volumes}}}})
    program = "a=python -c 'import sys; print(sys.argv[2], file=open(sys.argv[1], chr(97)))'"
    claim = Path("tfcluster", "local", "small", "claims", "default", "mine")
    for lines in (1, 2):
        run = start(declared, options=("--entrypoint", program, "--timeout", "0"))
        assert run.end() == 0, run.err + run.out
        assert f"volume mine stays in {run.state / claim}" in run.err
        assert (f"volume mine has files of an earlier run: {run.state / claim}" in run.err) == (lines == 2)
        assert (run.state / claim / "x").read_text() == "told\n" * lines
        assert {one.name for one in (run.state / claim).parents[1].parent.iterdir()} == {"claims", "lock"}
    other = start(cluster("other", jobs={"worker": job(WAITS)}))
    other.await_line("waits")
    assert str(run.state / claim) in run.tfcluster("local", "list").stdout
    assert run.tfcluster("local", "delete", "small").returncode == 0
    assert not (run.state / claim).parents[1].parent.exists()
    again = [run.tfcluster("local", "delete", name).stderr for name in ("small", "other")]
    assert ["run small not found" in again[0], "the run other is not over" in again[1]] == [True, True]


def test_pod_with_an_unusable_host_path_reports_the_error(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    host = {"path": str(tmp_path / "file" / "below"), "type": "DirectoryOrCreate"}
    run = start(cluster(jobs={"chief": job(WAITS, volumes=[{"name": "host", "hostPath": host}])}, backoffLimit=0))
    assert run.end() == 1
    assert "chief-0 ended with exit code 128: [Errno 20] Not a directory" in run.err


def test_a_deleted_cluster_has_not_succeeded(start: Start) -> None:
    """Continuous integration must not be green because a user deleted what it tests."""
    run = start(cluster(jobs={"chief": job(WAITS)}))
    run.await_line("waits")
    run.tfcluster("delete", "small", "--local", "--yes")
    assert (run.end(), "small was deleted before its end" in run.err) == (1, True)


def test_a_cluster_that_is_deleted_after_its_end_keeps_its_verdict(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    run = start(
        cluster("bad", jobs={"chief": job("raise SystemExit(3)")}, backoffLimit=0, ttlSecondsAfterFinished=0),
        cluster("good", jobs={"chief": job(ENDS_WITH_A_FLAG.format(flag=str(flag)))}),
    )

    def listed() -> str:
        return run.tfcluster("status", "--local").stdout

    eventually(listed, lambda text: "good" in text and "bad" not in text, what="the failed cluster is deleted")
    flag.touch()
    assert run.end() == 1
    assert "bad failed" in run.err
    assert "good succeeded" in run.err


def test_a_run_that_is_starting_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Between making its folder and locking it, by who looks and by who cleans up after killed runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lock, waiting = fcntl.flock, ["one"]

    def late(descriptor: int, how: int) -> None:
        if waiting and how & fcntl.LOCK_EX:
            waiting.pop()
            assert session.running() == []
            with session.begin("other"):
                pass
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with session.begin("one") as own:
        assert own.folder.is_dir()
        assert [one.name for one in session.running()] == ["one"]
    assert not own.folder.exists()


def test_missing_path_is_reported_with_its_option(start: Start) -> None:
    lost = job("", container={"command": ["python3", "/not-here-at-all/train.py"]})
    run = start(cluster(jobs={"chief": {**lost, "restartPolicy": "Never"}}))
    assert run.end() == 1
    assert run.err.count("add --map /not-here-at-all=FOLDER") == 1


ROOT = Path(__file__).parents[2]


def test_an_ended_demo_leaves_nothing(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "scripts.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: list(tmp_path.rglob("kubeconfig")), what="the cluster runs")
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(GUARD) == 128 + signal.SIGTERM
    finally:
        demo.kill()
        demo.wait(GUARD)

    assert list(tmp_path.glob("tfcluster-demo-*")) == []
    eventually(lambda: not list(processes_with(str(tmp_path))), what="no process of it is left")
