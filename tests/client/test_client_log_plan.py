"""Which logs should be open, and what their pieces and lines are: pure."""

from dataclasses import replace

import pytest

from tfcluster.logs.plan import LogPod, Progress, Sight, Steps, log_pod, log_pods, next_steps
from tfcluster.logs.reader import LogLine, Position
from tfcluster.tasks import NoTaskError, TaskName, choose

W0, W1 = TaskName("worker", 0), TaskName("worker", 1)


def cluster(*, workers: int = 1, verdict: str = "", suspend: bool = False) -> dict:
    conditions = [{"type": verdict, "status": "True", "message": "why"}] if verdict else []
    return {
        "metadata": {"name": "mnist", "uid": "u"},
        "spec": {"jobs": {"worker": {"replicas": workers}}, "suspend": suspend},
        "status": {"conditions": conditions},
    }


def steps(*pods: LogPod, progress: Progress, gone: bool = False, **of_cluster) -> Steps:
    return next_steps(Sight(cluster(**of_cluster), pods, (), gone), progress)


FIRST = LogPod(W0, "a", "mnist-worker-0", born=("1", 0))
SECOND = LogPod(W0, "b", "mnist-worker-0-r1", born=("2", 1))
ENDED = replace(FIRST, state="ended", words="failed with exit code 1", kept=True)


def reading(**changes) -> Progress:
    """The log of the first pod is open."""
    return Progress(**{"begun": True, "open": {"a"}, "last": {W0: FIRST}, "tasks": {W0}, **changes})


def read(**changes) -> Progress:
    """The log of the first pod is read to its end."""
    return reading(open=set(), read={"a"}, **changes)


def test_the_next_pod_of_a_task_waits_until_the_log_of_the_one_before_is_out():
    found = steps(ENDED, SECOND, progress=reading(last={W0: ENDED}))
    assert (found.open, found.over) == ((), {"a"})
    found = steps(ENDED, SECOND, progress=read(last={W0: ENDED}))
    words = "worker-0: pod mnist-worker-0 failed with exit code 1; the task continues in mnist-worker-0-r1"
    assert (found.open, list(found.say.values())) == ((SECOND,), [words])


def test_pods_that_were_kept_before_are_not_followed():
    found = steps(ENDED, SECOND, progress=Progress())
    assert (found.open, found.skip) == ((SECOND,), {"a"})


def test_a_pod_that_came_and_failed_between_two_looks_is_read():
    between = replace(SECOND, state="ended", kept=True)
    third = LogPod(W0, "c", "mnist-worker-0-r2", born=("3", 2))
    assert steps(between, third, progress=read()).open == (between,)


def test_a_finished_cluster_ends_the_stream_when_all_is_out():
    ended = replace(FIRST, state="ended")
    assert not steps(ended, progress=reading(), verdict="Succeeded").done
    found = steps(ended, progress=read(), verdict="Failed")
    assert (found.done, found.say["verdict"]) == (True, "TFCluster mnist has failed: why")
    assert not steps(ended, progress=read()).done


def test_what_runs_on_after_the_end_need_only_become_quiet():
    progress = reading(open={"a", "z"})
    found = steps(FIRST, progress=progress, verdict="Succeeded")
    assert found.quiet == {"a", "z"}, "a runs on, z is gone from the API"
    assert found.over == {"z"}
    assert steps(FIRST, progress=progress).quiet == {"z"}
    leaving = steps(replace(FIRST, leaving=True), progress=progress, verdict="Succeeded")
    assert leaving.quiet == {"z"}, "it still has its grace period"


def test_wait_is_reported_once_and_again_if_stuck():
    waiting = replace(FIRST, state="waiting", words="its container is being created")
    progress = Progress()
    found = steps(waiting, progress=progress)
    assert list(found.say.values()) == ["worker-0: not started: its container is being created"]
    progress.begun, progress.tasks = True, {W0}
    progress.told |= set(found.say)
    assert steps(waiting, progress=progress).say == {}
    assert steps(replace(waiting, uid="next"), progress=progress).say == {}
    stuck = replace(waiting, words="ImagePullBackOff: no such image", stuck=True)
    said = steps(stuck, progress=progress).say.values()
    assert list(said) == ["worker-0: not started: ImagePullBackOff: no such image"]


def test_pods_that_wait_for_the_same_share_a_line():
    waiting = LogPod(W0, "", "p", state="waiting", words="it is not scheduled yet")
    pods = [replace(waiting, task=TaskName("worker", index), uid=f"u{index}") for index in range(6)]
    said = [words for words in steps(*pods, progress=Progress()).say.values() if words]
    assert said == ["worker-0, worker-1, worker-2 and 3 more: not started: it is not scheduled yet"]


def test_suspended_cluster_names_the_resume_command():
    found = next_steps(Sight(cluster(suspend=True), (), (W0,)), Progress())
    assert found.say["absent"].endswith("TFCluster mnist is suspended; `tfcluster resume mnist` starts it")
    assert not found.done


def raw(**status) -> dict:
    mesh = {"name": "mesh", "restartPolicy": "Always"}
    return {
        "metadata": {"name": "mnist-worker-0", "uid": "a", "labels": {}, "annotations": {}},
        "spec": {"containers": [{"name": "proxy"}, {"name": "tensorflow"}], "initContainers": [mesh]},
        "status": status,
    }


def container(name: str = "tensorflow", *, count: int = 0, last: dict | None = None, **state) -> list[dict]:
    return [{"name": name, "state": state, "lastState": last or {}, "restartCount": count}]


def statuses(phase: str = "", **of_container) -> dict:
    return {"phase": phase, "containerStatuses": container(**of_container)}


NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
NO_IMAGE = {"reason": "ErrImagePull", "message": "no\n such image"}
KILLED, COMPLETE = {"exitCode": 137, "reason": "OOMKilled"}, {"exitCode": 0, "reason": "Completed"}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
AGAIN = {"waiting": {"reason": "CrashLoopBackOff"}, "last": {"terminated": {"exitCode": 1}}, "count": 3}


@pytest.mark.parametrize(
    ("status", "state", "readable", "words"),
    [
        ({"phase": "Pending"}, "waiting", False, "it is not scheduled yet"),
        ({"conditions": [NO_NODE]}, "waiting", False, "Unschedulable: 0/1"),
        (statuses(waiting=NO_IMAGE), "waiting", False, "ErrImagePull: no such image"),
        (statuses("Running", running={}), "running", True, ""),
        (statuses("Running", terminated=KILLED), "ended", True, "failed with exit code 137, OOMKilled"),
        (statuses("Succeeded", terminated=COMPLETE), "ended", True, "ended with exit code 0"),
        (EVICTED, "ended", False, "was taken away: The node was low on memory."),
        (statuses(**AGAIN), "running", True, ""),
    ],
)
def test_what_a_pods_state_means_to_its_log(status, state, readable, words):
    pod = log_pod(W0, raw(**status))
    assert (pod.state, pod.readable, pod.words, pod.container) == (state, readable, words, "tensorflow")


def test_a_sidecar_that_ended_is_started_again_by_the_kubelet():
    status = {"phase": "Running", "initContainerStatuses": container("mesh", terminated={"exitCode": 1}, count=1)}
    assert log_pod(W0, raw(**status), "mesh").state == "running"
    assert log_pod(W0, raw(**{**status, "phase": "Failed"}), "mesh").state == "ended"
    assert log_pod(W0, raw(**status), "other").container == ""


def test_pods_of_another_cluster_of_the_name_are_left_out():
    pod = raw(phase="Running")
    pod["metadata"] |= {
        "labels": {"tfcluster.dev/job": "worker", "tfcluster.dev/task-index": "0"},
        "ownerReferences": [{"controller": True, "uid": "u"}],
    }
    assert [one.task for one in log_pods("u", [pod])] == [W0]
    assert log_pods("another", [pod]) == []


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        ([], [W0, TaskName("ps", 7)], []),
        (["worker"], [W0, TaskName("worker", 99)], [TaskName("ps", 0)]),
        (["worker-1", "ps"], [W1, TaskName("ps", 0)], [W0]),
        (["worker-5"], [TaskName("worker", 5)], [W0]),
        (["worker/1", "ps/0"], [W1, TaskName("ps", 0)], [W0]),
        (["my-data-1"], [TaskName("my_data", 1)], [TaskName("my_data", 0)]),
        (["my_data-1", "my_data/0"], [TaskName("my_data", 1), TaskName("my_data", 0)], [W0]),
        (["my-data"], [TaskName("my_data", 1)], [W0]),
    ],
)
def test_tasks_are_chosen_by_job_and_index(words, inside, outside):
    chosen = choose(words, {"my_data": 2, "ps": 1, "worker": 2}, [TaskName("worker", 5)], "mnist")
    assert all(task in chosen for task in inside)
    assert not any(task in chosen for task in outside)
    assert str(TaskName("my_data", 1)) == "my-data-1"


@pytest.mark.parametrize(
    "word", ["worker-2", "worker/-1", "worker/", "worker-" + "9" * 5000, "worker-0/1", "nobody", "worker-٣", ""]
)
def test_unknown_task_is_rejected(word):
    with pytest.raises(NoTaskError, match="it has worker-0 to worker-1"):
        choose([word], {"worker": 2}, [], "mnist")


def stamped(second: int, text: str, nanos: int = 0) -> bytes:
    return f"2026-01-01T00:00:{second:02d}.{nanos:09d}Z {text}".encode()


def texts(position: Position, *lines: bytes) -> list[str]:
    return [taken[1] for line in lines if (taken := position.take(line))]


def reopened(*lines: bytes) -> Position:
    """Give the place in a log of which these lines are read already."""
    position = Position()
    texts(position, *lines)
    position.reopen()
    return position


def test_what_comes_again_is_left_out_and_what_is_new_among_it_is_not():
    position = reopened(stamped(9, "a"), stamped(10, "b"), stamped(10, "b"))
    assert position.since() == "2026-01-01T00:00:10Z"
    again = [stamped(9, "a"), stamped(10, "b"), stamped(10, "b"), stamped(10, "b"), stamped(10, "c", 1)]
    assert texts(position, *again) == ["b", "c"]
    for _ in range(2):
        position.reopen()
        assert texts(position, *again) == []
    assert texts(position, stamped(11, "d")) == ["d"]


def test_times_of_other_zones_are_of_the_same_clock():
    position = reopened(b"2026-01-01T02:00:10.5+02:00 a")
    assert position.since() == "2026-01-01T00:00:10Z"
    assert texts(position, b"2026-01-01T00:00:10.5Z a", b"2026-01-01T00:00:10.51Z b") == ["b"]
    line = LogLine("worker", 0, "p", "c", "text", "2026-01-01T02:00:10.123456789+02:00")
    assert line.time is not None
    assert line.time.isoformat() == "2026-01-01T00:00:10.123456+00:00"
    assert LogLine("worker", 0, "p", "c", "text", "").time is None


def test_the_rest_of_a_line_that_began_before_is_left_out():
    position = reopened(stamped(10, "a"))
    assert texts(position, b"the end of a long line", stamped(11, "b"), b"more of b") == ["b", "more of b"]


def test_lines_of_a_server_that_tells_no_times_are_kept():
    assert texts(Position(), b"one", b"2026 two", b"") == ["one", "2026 two", ""]
