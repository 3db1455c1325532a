"""The resolver's own doctor, run in some of the running tasks: names, ports, peers and devices as programs see them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.checks import Check, Verdict
from tfcluster.errors import RefusedError, UnreachableError
from tfcluster.kubernetes_api import Executed, KubernetesApi
from tfcluster.picture import Picture
from tfcluster.standing import clean
from tfcluster.task_picture import TaskPicture

#: In so many tasks it is run, and that long each may take, in seconds: to import TensorFlow takes most of it.
AT_MOST: Final = 8
_SECONDS: Final = 60.0
_PROGRAM: Final = ("python3", "-m", "tfcluster_resolver", "doctor", "--json", "--timeout", "5")
_BY_HAND: Final = "Run it by hand, where it may take longer: kubectl exec POD -- python3 -m tfcluster_resolver doctor"
_NOT_STARTED: Final = frozenset({126, 127})
_TIMED_OUT: Final = 124
_KNOWN: Final[Mapping[str, Verdict]] = {"ok": "ok", "warning": "warning", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it in one task: how the program ended, or why it could not be run."""

    task: str
    executed: Executed | None = None
    refused: str = ""


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
        try:
            done = api.execute(task.pod, _PROGRAM, container=containers.get(task.job, ""), seconds=_SECONDS)
        except (RefusedError, UnreachableError) as error:
            return Answer(task.name, refused=str(error))
        return Answer(task.name, done)

    with ThreadPoolExecutor(AT_MOST) as pool:
        return list(pool.map(run, tasks))


def judge(answers: Sequence[Answer]) -> Iterator[Check]:
    """Put the answers together: what several tasks say alike is said once.

    Yields:
        What is wrong, or one check that says that nothing is.
    """
    told: dict[tuple[str, Verdict, str, str], list[str]] = {}
    for answer in answers:
        for check in _checks(answer):
            key = (check.name, check.verdict, check.message, check.remedy)
            told.setdefault(key, []).append(answer.task)
    examined = [one.task for one in answers if one.executed is not None and _document(one.executed) is not None]
    wrong = False
    for (name, verdict, message, remedy), tasks in told.items():
        if verdict != "ok":
            wrong = True
            yield Check(f"inside: {name}", verdict, f"{_few(tasks)}: {message}", remedy)
    if examined and not wrong:
        yield Check("inside", "ok", f"the view, names, ports and peers are well in {_few(examined)}")
    if not answers:
        yield Check("inside", "skipped", "no task runs in which one could look")


def _checks(answer: Answer) -> Iterator[Check]:
    done = answer.executed
    if done is None:
        yield Check("exec", "unknown", answer.refused)
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


def _few(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
