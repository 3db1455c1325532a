"""The resolver's own doctor, run in some of the running tasks: names, ports, peers and devices as programs see them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tfcluster.doctor.checks import Check, Unknown, Verdict
from tfcluster.doctor.facts import ask
from tfcluster.kube.api import KubernetesApi
from tfcluster.kube.exec import Executed, execute
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster.terminal import clean, few

#: In so many tasks it is run, and that long each may take, in seconds: to import TensorFlow takes most of it.
AT_MOST: Final = 8
_SECONDS: Final = 60.0
_PROGRAM: Final = ("python3", "-m", "tfcluster_resolver", "doctor", "--json", "--timeout", "5")
_BY_HAND: Final = "Run it by hand, where it may take longer: kubectl exec POD -- python3 -m tfcluster_resolver doctor"
_NOT_STARTED: Final = frozenset({126, 127})
_TIMED_OUT: Final = 124
_KNOWN: Final[Mapping[str, Verdict]] = {"ok": "ok", "warning": "warning", "failed": "failed"}


#: A task, and what came of it there: how the program ended, or why it could not be run.
Answer = tuple[str, Executed | Unknown]


def chosen(picture: Picture) -> list[TaskPicture]:
    """Choose the tasks: of each job the first that runs, then the next ones."""
    running = [
        [task for task in job.tasks if task.phase == "Running" and task.state in {"Ready", "NotReady"}]
        for job in picture.jobs
    ]
    rounds = (of_job[turn] for turn in range(AT_MOST) for of_job in running if turn < len(of_job))
    return [task for _, task in zip(range(AT_MOST), rounds, strict=False)]


def examine(api: KubernetesApi, tasks: Sequence[TaskPicture], containers: Mapping[str, str]) -> list[Answer]:
    """Run it in tasks, beside each other."""

    def run(task: TaskPicture) -> Answer:
        container = containers.get(task.job, "")
        return task.name, ask(lambda: execute(api, task.pod, _PROGRAM, container=container, seconds=_SECONDS))

    with ThreadPoolExecutor(AT_MOST) as pool:
        return list(pool.map(run, tasks))


def judge_answers(answers: Sequence[Answer]) -> Iterator[Check]:
    """Put the answers together: what several tasks say alike is said once."""
    told: dict[tuple[str, Verdict, str, str], list[str]] = {}
    examined = [task for task, done in answers if isinstance(done, Executed) and _document(done) is not None]
    for task, done in answers:
        for check in _checks(done):
            told.setdefault((check.name, check.verdict, check.message, check.remedy), []).append(task)
    wrong = {key: tasks for key, tasks in told.items() if key[1] != "ok"}
    for (name, verdict, message, remedy), tasks in wrong.items():
        yield Check(f"inside: {name}", verdict, f"{few(tasks)}: {message}", remedy)
    if examined and not wrong:
        yield Check("inside", "ok", f"the view, names, ports and peers are well in {few(examined)}")
    if not answers:
        yield Check("inside", "skipped", "no task runs in which one could look")


def _checks(done: Executed | Unknown) -> Iterator[Check]:
    if isinstance(done, Unknown):
        yield Check("exec", "unknown", done.why)
        return
    document = _document(done)
    if document is not None:
        for one in document["checks"]:
            verdict = _KNOWN.get(str(one.get("verdict")))
            if verdict is not None:
                yield Check(str(one.get("name")), verdict, clean(one.get("message", "")), clean(one.get("remedy", "")))
    elif done.code == _TIMED_OUT:
        yield Check("exec", "warning", f"no answer within {_SECONDS:.0f} s", _BY_HAND)
    elif done.code in _NOT_STARTED or "No module named" in done.stderr:
        last = (done.stderr.strip().splitlines() or ["there is no python3"])[-1]
        yield Check("exec", "unknown", f"the resolver cannot be run in the container: {clean(last)}")
    else:
        last = ((done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.code}"])[-1]
        yield Check("exec", "unknown", f"the resolver's doctor gave no answer: {clean(last)[:200]}")


def _document(done: Executed) -> Any:
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return None
    return document if isinstance(document, dict) and isinstance(document.get("checks"), list) else None
