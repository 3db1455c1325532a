"""One change of a running program's cluster, step by step.

New tasks must listen, leaving workers finish their closure, and only then TensorFlow's cluster changes.
Until then everything can be left as it was, and no lock is held that the program needs.  Loading it imports TensorFlow.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from tfcluster_resolver import contract
from tfcluster_resolver._tensorflow import private, tensorflow_api
from tfcluster_resolver._tensorflow.workers import END, RECOVER, Hold, Running, device_name
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.connect import reconnect
from tfcluster_resolver.elastic import plan
from tfcluster_resolver.elastic.engine import ElasticEngine, Request, tasks_of
from tfcluster_resolver.elastic.plan import Change
from tfcluster_resolver.errors import ArgumentTypeError, RestartNeededError, TasksBusyError, TasksUnreachableError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting import wait_for_tasks
from tfcluster_resolver.waiting.addresses import host_and_port

#: Seconds between two checks of tasks that are waited for, and between two requests to workers that are busy.
_LOOK: Final = 0.1
_ASK: Final = 1.0
#: Seconds that a busy worker can be silent before its connections are closed: it is not waited for.
_SILENT: Final = 5.0
#: Seconds that leaving workers get to note their release.
_FAREWELL: Final = 1.0

#: Held while one engine takes over.
_taking_over: Final = threading.Lock()


def engine_of(coordinator: Any, deadline: float) -> ElasticEngine:
    """Return the engine of a coordinator; the first call takes the handling of lost workers over."""
    tensorflow = tensorflow_api.load("resize()")
    if isinstance(coordinator, tensorflow.distribute.MultiWorkerMirroredStrategy):
        raise RestartNeededError(
            "a MultiWorkerMirroredStrategy cannot be resized: TensorFlow fixes its group when it starts. Nothing was "
            "changed: save a checkpoint and start all its workers again"
        )
    if not isinstance(coordinator, tensorflow.distribute.coordinator.ClusterCoordinator):
        kind = type(coordinator).__name__
        raise ArgumentTypeError(f"resize() takes a tf.distribute.coordinator.ClusterCoordinator, not {kind}")
    while True:
        with _taking_over:
            there: ElasticEngine | None = Running.engine_of(coordinator)
            if there is not None:
                return there
            engine = ElasticEngine(Running(coordinator))
            if engine.begin():
                return engine
        if time.monotonic() > deadline:
            raise _unreachable(
                "TensorFlow connects to lost workers at the moment and cannot be interrupted. Nothing was changed: try "
                "again when they listen",
                engine.silent(tasks_of(engine.wanted)),
            )
        time.sleep(_LOOK)


def follow_once(
    engine: ElasticEngine,
    resolver: TFClusterResolver,
    deadline: float,
    *,
    wait: bool,
    outdated: Callable[[], bool] = lambda: False,
) -> tuple[Change, tuple[Task, ...]]:
    """Follow what the cluster is now, until a deadline by the monotonic clock; the caller holds ``engine.resizing``."""
    # It returns what was changed, also by an earlier call that did not wait for its end, and the tasks that were left
    # for later: without ``wait`` those that come and do not listen yet.  An outdated change ends.
    _await_unfinished(engine, deadline)
    membership = resolver.membership()
    view = membership.view
    pods = {(job, index): pod for job, of_job in view.incarnations.items() for index, pod in of_job.items()}
    listed = membership.jobs().items()
    wanted = {job: tasks if isinstance(tasks, dict) else dict(enumerate(tasks)) for job, tasks in listed}
    if engine.incarnations is None:
        engine.incarnations = dict(pods)
    known = _known(engine)
    change = plan.plan(known, wanted, pods, view.epoch)
    late: tuple[Task, ...] = ()
    if not wait:
        coming = _addresses((*change.added, *change.replaced))
        ready = engine.answering(coming)
        for job, index, address in change.replaced:
            if (job, index) not in ready and known.jobs[job][index] == address:
                engine.leave((job, index), pods[job, index])
        part = plan.only(change, {Task(*task, coming[task]) for task in ready})
        late = tuple(task for task in (*change.added, *change.replaced) if task not in (*part.added, *part.replaced))
        change = part
    if change:
        change = _Resize(engine, known, change, pods, deadline, outdated=outdated).make()
    untold, engine.untold = engine.untold, None
    return (plan.joined(untold, change) if untold else change), late


def _await_unfinished(engine: ElasticEngine, deadline: float) -> None:
    """Wait for a change that an earlier call did not wait for; the next one reports it."""
    unfinished = engine.unfinished
    if unfinished is None:
        return
    if not unfinished.done.wait(max(0.0, deadline - time.monotonic())):
        raise _unreachable(
            "TensorFlow is still making the change before, and makes it when they answer. Nothing more was changed: "
            "call resize() again to wait for it",
            engine.silent(tasks_of(unfinished.wanted)),
        )
    engine.unfinished, made = None, unfinished.change
    engine.untold = plan.joined(engine.untold, made) if engine.untold else made


class _Resize(Request):
    """One change of a running program; ``pods`` are those of the tasks now, as far as they are known."""

    def __init__(
        self,
        engine: ElasticEngine,
        known: plan.Known,
        change: Change,
        pods: Mapping[tuple[str, int], str],
        deadline: float,
        *,
        outdated: Callable[[], bool],
    ) -> None:
        self._jobs = plan.changed(known.jobs, change)
        wanted = copy.deepcopy(engine.wanted)
        for job in wanted.cluster.job:
            if job.name in plan.ELASTIC:
                job.tasks.clear()
                job.tasks.update(self._jobs[job.name])
        self._gone = [task.index for task in change.removed if task.job == "worker"]
        super().__init__(wanted, change, final=bool(self._gone))
        self._engine, self._known, self._pods, self._deadline = engine, known, pods, deadline
        self._outdated = outdated
        self._replaced = [task.index for task in change.replaced if task.job == "worker"]
        #: Those that are another pod behind the same address: the old one never finishes its closure.
        self._lost = [index for index in self._replaced if known.jobs["worker"][index] == self._jobs["worker"][index]]
        self._holds: dict[int, Hold] = {}

    def make(self) -> Change:
        engine = self._engine
        try:
            for index in self._lost:
                engine.forget(("worker", index))
            self._holds |= engine.hold(self._lost)
            coming = _addresses((*self.change.added, *self.change.replaced))
            self._await_answers(coming | {("ps", index): address for index, address in self._jobs["ps"].items()})
            self._holds |= engine.hold({*self._gone, *self._replaced} - {*self._lost})
            self._await_holds()
        except BaseException:
            engine.release(self._holds)
            raise
        self._await_update()
        return self.change

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline or self._outdated()

    def _await_answers(self, tasks: Mapping[tuple[str, int], str]) -> None:
        while tasks := self._engine.silent(tasks):
            if self._is_over():
                raise _unreachable("Nothing was changed: try again when they listen", tasks)
            time.sleep(_LOOK)

    def _await_holds(self) -> None:
        engine, tasks = self._engine, tasks_of(self._engine.wanted)
        heard = dict.fromkeys(self._holds, time.monotonic())
        asked = time.monotonic()
        while busy := [index for index, hold in self._holds.items() if not hold.held.wait(_LOOK / len(self._holds))]:
            now = time.monotonic()
            if self._is_over():
                raise TasksBusyError(
                    f"{', '.join(f'/job:worker/task:{index}' for index in busy)} did not finish their closures. "
                    "Nothing was changed: try again, with a longer timeout than a closure takes"
                )
            if now - asked < _ASK:
                continue
            asked = now
            answered = engine.answering({("worker", index): tasks["worker", index] for index in busy})
            for index in busy:
                # Once more: TensorFlow forgets a worker's request if it fails at that moment.
                engine.running.order(index, self._holds[index].act)
                if ("worker", index) in answered:
                    heard[index] = now
                elif now - heard[index] > _SILENT:  # it was lost, and another one runs its closure
                    with engine.cut_off({("worker", index)}):
                        pass

    def _await_update(self) -> None:
        engine = self._engine
        engine.ask(self)
        engine.unfinished = self
        try:
            self.done.wait(max(0.0, self._deadline - time.monotonic()))
        finally:
            withdrawn = engine.withdraw(self)
            if withdrawn:
                engine.unfinished = None
                engine.release(self._holds)
        if self.done.is_set():
            engine.unfinished = None
            return
        said = f" TensorFlow said: {self.error}." if self.error else ""
        now = (
            "Nothing was changed: try again"
            if withdrawn
            else "It continues when they answer, and then the cluster changes: call resize() again to wait for it"
        )
        raise _unreachable(
            f"TensorFlow did not change its cluster in time.{said} {now}", engine.silent(tasks_of(self.wanted))
        )

    def before(self) -> None:
        """End the threads of the workers that go; in the engine's thread."""
        leaving = {index: self._holds[index] for index in self._gone}
        for index, hold in leaving.items():
            down = index in self._engine.down
            hold.decide(END, None if down else _farewell(index, self._known.jobs["worker"][index]))
        end = time.monotonic() + _FAREWELL
        for hold in leaving.values():
            hold.left.wait(max(0.0, end - time.monotonic()))

    def after(self, down: Collection[int]) -> list[Any]:
        """Let new workers take closures; in the engine's thread."""
        engine, running = self._engine, self._engine.running
        coming = sorted(task for task in self.change.added if task.job == "worker")
        odd = [task for task in coming if task.index not in down and private.gpus("worker", task.index) != running.gpus]
        out = [task for task in coming if odd and task >= odd[0]]
        count = len(self._jobs["worker"])
        kept = running.drop(count - len(coming))
        running.set_sizes(count - len(out), len(self._jobs["ps"]))
        for task in coming[: len(coming) - len(out)]:
            running.start(task.index)
        engine.release({index: self._holds[index] for index in self._replaced}, RECOVER)
        engine.release({index: self._holds[index] for index in self._gone}, END)
        if out:
            engine.leave_out([task.index for task in out])
            reason = f"it, or one below it, has another number of GPUs than the {running.gpus} of the strategy"
            self.change = plan.without(self.change, out, reason)
        done = _addresses((*self.change.added, *self.change.replaced))
        pods = {task: pod for task, pod in self._pods.items() if task in done}
        engine.incarnations = {**(engine.incarnations or {}), **pods}
        return kept


def _known(engine: ElasticEngine) -> plan.Known:
    jobs: dict[str, dict[int, str]] = {}
    wanted = engine.wanted
    for (job, index), address in tasks_of(wanted).items():
        jobs.setdefault(job, {})[index] = address
    own = next((dict(job.tasks) for job in wanted.cluster.job if job.name == wanted.job_name), {})
    return plan.Known(
        jobs,
        wanted.job_name,
        own.get(wanted.task_index, ""),
        dict(engine.incarnations or {}),
        reconnect.filtered_tasks(wanted.cluster_device_filters),
        lambda index: [
            text
            for text in tensorflow_api.held_elsewhere(wanted.job_name)
            if f" on /job:ps/replica:0/task:{index}/" in text
        ],
    )


def _addresses(tasks: Sequence[Task]) -> dict[tuple[str, int], str]:
    return {(task.job, task.index): task.address for task in tasks}


def _unreachable(text: str, silent: Mapping[tuple[str, int], str]) -> TasksUnreachableError:
    tasks = [(job, index, address) for (job, index), address in sorted(silent.items())]
    missing = wait_for_tasks(tasks, timeout=0, grpc=True)
    who = f"{len(missing)} tasks do not answer. " if missing else ""
    return TasksUnreachableError("\n  ".join([f"{who}{text}{':' if missing else ''}", *map(str, missing)]), missing)


def _farewell(index: int, address: str) -> Callable[[], None]:
    """Note on a worker that the coordinator has released it: its server can end."""

    def write() -> None:
        tensorflow = tensorflow_api.load("resize()")
        # On the worker's device these would be created under Python's lock: all threads would wait for one that hangs.
        with tensorflow.device("CPU:0"):
            name, content = map(tensorflow.constant, (contract.released_file(host_and_port(address)[1]), ""))
        with tensorflow.device(f"{device_name(index)}/device:CPU:0"):
            tensorflow.io.write_file(name, content)

    return write
