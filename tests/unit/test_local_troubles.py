"""`tfcluster local run` where the machine or the user is in the way: full disks, odd files, deletions."""

from __future__ import annotations

import fcntl
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import GUARD, eventually
from unit.local_world import Run, cluster, job

from tfcluster.errors import TFClusterError
from tfcluster.local import session

Start = Callable[..., Run]
WAITS = "import time; print('waits', flush=True); time.sleep(600)"
ENDS_WHEN_TOLD = """
import pathlib, time
print("waits", flush=True)
while not pathlib.Path({flag!r}).exists(): time.sleep(0.02)
print("much " * 100_000, *range(10_000), sep="\\n")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs, which end with the test."""
    made: list[Run] = []

    def make(*objects: Any, **arguments: Any) -> Run:
        made.append(Run(tmp_path / "run", *objects, **arguments))
        return made[-1]

    yield make
    for run in made:
        run.process.kill()
        run.process.wait(GUARD)


def test_a_program_runs_on_where_its_output_cannot_be_kept(start: Start, tmp_path: Path) -> None:
    """Neither a full disk below the logs nor one below standard output blocks the program; each is told of once."""
    flag = tmp_path / "flag"
    run = start(cluster(jobs={"chief": job(ENDS_WHEN_TOLD.format(flag=str(flag)))}))
    run.await_line("waits")
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    flag.touch()

    assert run.end() == 0, run.err
    assert run.err.count("the log file of small-chief-0 lacks lines: File too large") == 1
    assert run.err.count("standard output takes no more lines: File too large") == 1
    assert "Traceback" not in run.err


def test_a_pod_that_cannot_be_played_says_why(start: Start, tmp_path: Path) -> None:
    """The story has the system's words."""
    (tmp_path / "file").touch()
    host = {"path": str(tmp_path / "file" / "below"), "type": "DirectoryOrCreate"}
    spec = cluster(jobs={"chief": job(WAITS, volumes=[{"name": "host", "hostPath": host}])}, backoffLimit=0)
    run = start(spec)

    assert run.end() == 1
    assert "chief-0 ended with exit code 128: [Errno 20] Not a directory" in run.err


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(start: Start, tmp_path: Path) -> None:
    """A run may last for hours: its report must not turn out to have no place then."""
    (tmp_path / "file").touch()
    run = start(cluster(jobs={"chief": job("")}), options=("--junit", str(tmp_path / "file" / "report.xml")))

    assert run.end() == 1
    assert "report.xml cannot be written: File exists" in run.err
    assert "starts at" not in run.err
    assert "Traceback" not in run.err


def test_a_report_makes_its_folder_and_a_timeout_of_0_is_none(start: Start, tmp_path: Path) -> None:
    """Both as in the other commands, and as in other tools."""
    report = tmp_path / "new" / "folder" / "report.xml"
    run = start(cluster(jobs={"chief": job("")}), options=("--junit", str(report), "--timeout", "0"))

    assert run.end() == 0, run.err
    assert report.read_bytes().startswith(b"<?xml")


def test_a_deleted_cluster_has_not_succeeded(start: Start) -> None:
    """Continuous integration must not be green because somebody deleted what it tests."""
    run = start(cluster(jobs={"chief": job(WAITS)}))
    run.await_line("waits")
    run.tfcluster("delete", "small", "--local", "--yes")

    assert run.end() == 1
    assert "small was deleted before its end" in run.err


def test_a_cluster_that_is_deleted_after_its_end_keeps_its_verdict(start: Start, tmp_path: Path) -> None:
    """A failure is not forgotten where ttlSecondsAfterFinished deletes it while another cluster runs on."""
    flag = tmp_path / "flag"
    run = start(
        cluster("bad", jobs={"chief": job("raise SystemExit(3)")}, backoffLimit=0, ttlSecondsAfterFinished=0),
        cluster("good", jobs={"chief": job(ENDS_WHEN_TOLD.format(flag=str(flag)))}),
    )
    listed = lambda: run.tfcluster("status", "--local").stdout  # noqa: E731 - asked again and again
    eventually(listed, lambda text: "good" in text and "bad" not in text, what="the failed cluster is deleted")
    flag.touch()

    assert run.end() == 1
    assert "bad failed" in run.err
    assert "good succeeded" in run.err


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is in no list of users."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(TFClusterError) as caught:
        session.states()
    assert "XDG_STATE_HOME" in str(caught.value.hint)


def test_a_run_that_is_starting_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Between making its folder and locking it, whoever looks, and whoever cleans up after killed runs."""
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


def test_a_stopped_run_is_named_and_not_waited_for(start: Start) -> None:
    """After Ctrl-Z nothing answers: the other commands say so at once."""
    run = start(cluster(jobs={"chief": job(WAITS)}))
    run.await_line("waits")
    run.signal(signal.SIGSTOP)
    asked = run.tfcluster("status", "--local")
    run.signal(signal.SIGCONT)

    assert asked.returncode == 1
    assert "the run small is stopped" in asked.stderr
    assert f"kill -CONT {run.process.pid}" in asked.stderr


def test_a_task_that_lacks_a_gpu_is_told_how_to_get_one(start: Start) -> None:
    """Most machines on which manifests are tried have none."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    run = start(cluster(jobs={"chief": job(WAITS, container=limits)}), options=("--gpus", "0", "--timeout", "0.3s"))

    assert run.end() == 124
    assert "Insufficient nvidia.com/gpu. --gpus N grants some" in run.err


def test_what_to_map_is_said_once_for_a_folder(start: Start) -> None:
    """A working directory at the top of the image is a folder of its own, whether a program in it is named or not."""
    lost = {"command": ["python3", "/not-here-at-all/train.py"], "workingDir": "/not-here-at-all"}
    jobs = {"chief": job("", container=lost), "worker": job("", container={"workingDir": "/nor-this"})}
    run = start(cluster(jobs=jobs), options=("--timeout", "0.2s"))

    assert run.end() == 124
    assert run.err.count("add --map /not-here-at-all=FOLDER") == 1
    assert run.err.count("add --map /nor-this=FOLDER") == 1
    assert run.err.count("add --map") == 2


def test_what_is_kept_is_said_and_for_how_long(start: Start) -> None:
    """The next run of that name deletes it."""
    run = start(cluster(jobs={"chief": job("")}), options=("--keep",))

    assert run.end() == 0, run.err
    kept = run.state / "tfcluster" / "local" / "small"
    assert f"logs and volumes stay until the next run of that name: {kept}" in run.err
    assert (kept / "logs").is_dir()
