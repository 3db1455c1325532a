"""Making one change of a running program's cluster.

It decides in which order a change is made: whoever comes must listen, whoever goes finishes the closure in hand, and
only then TensorFlow's cluster changes.  Until then everything can be left as it was, and no lock is held that the
program needs.  Loading it imports TensorFlow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tfcluster_resolver import contract
from tfcluster_resolver._tensorflow import private, tensorflow_api
from tfcluster_resolver._tensorflow.workers import END, RECOVER, Running, device_name
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.connect import reconnect
from tfcluster_resolver.elastic import plan
from tfcluster_resolver.elastic.engine import ElasticEngine
from tfcluster_resolver.elastic.parts import Hold, Request, tasks_of
from tfcluster_resolver.elastic.plan import Change
from tfcluster_resolver.errors import ArgumentTypeError, RestartNeededError, TasksBusyError, TasksUnreachableError
from tfcluster_resolver.waiting import wait_for_tasks
from tfcluster_resolver.waiting.reachability import host_and_port

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver

#: Seconds between two looks at tasks that are waited for, and between two questions to workers that are busy.
_LOOK: Final = 0.1
_ASK: Final = 1.0
#: Seconds that a busy worker may be silent before its connections are closed: it is not waited for.
_SILENT: Final = 5.0
#: Seconds that leaving workers get to note that they are let go of.
_FAREWELL: Final = 1.0


#: Held while one engine takes over.
_taking_over: Final = threading.Lock()


def engine_of(coordinator: Any, deadline: float) -> ElasticEngine:
    """Give the engine of a coordinator; the first call takes the handling of lost workers over.

    Args:
        coordinator: the ClusterCoordinator.
        deadline: when to stop waiting for TensorFlow, by the monotonic clock.

    Returns:
        The engine.

    Raises:
        ArgumentTypeError, RestartNeededError, TasksUnreachableError: see :func:`tfcluster_resolver.elastic.resize`.
    """
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
                _silent(engine, tasks_of(engine.wanted)),
            )
        time.sleep(_LOOK)


def follow_once(
    engine: ElasticEngine, resolver: TFClusterResolver, deadline: float, *, wait: bool
) -> tuple[Change, tuple[Task, ...]]:
    """Follow what the cluster is now; the caller holds ``engine.resizing``.

    Args:
        engine: the coordinator's.
        resolver: the cluster.
        deadline: when to give up, by the monotonic clock.
        wait: whether to wait for tasks that come to listen, or to leave them for later.

    Returns:
        What was changed, also by an earlier call that did not wait for its end, and the tasks that were left for later.
    """
    _await_unfinished(engine, deadline)
    now = resolver.snapshot()
    membership = now.membership()
    pods = _incarnations(membership.view)
    wanted = {
        job: dict(tasks) if isinstance(tasks, dict) else dict(enumerate(tasks))
        for job, tasks in membership.jobs().items()
    }
    known = _known(engine)
    change = plan.plan(known, wanted, pods, membership.view.epoch)
    late: tuple[Task, ...] = ()
    if not wait:
        coming = _addresses((*change.added, *change.replaced))
        ready = engine.answering(coming)
        for task, address in _addresses(change.replaced).items():
            if task not in ready and known.jobs[task[0]][task[1]] == address:
                engine.leave(task, pods[task])
        part = plan.only(change, {Task(*task, coming[task]) for task in ready})
        late = tuple(task for task in (*change.added, *change.replaced) if task not in (*part.added, *part.replaced))
        change = part
    if change:
        change = _Resize(engine, known, change, pods, deadline).make()
    engine.incarnations |= {task: pod for task, pod in pods.items() if task not in engine.incarnations}
    untold, engine.untold = engine.untold, None
    return (plan.joined(untold, change) if untold else change), late


def _await_unfinished(engine: ElasticEngine, deadline: float) -> None:
    """Wait for a change that an earlier call did not wait for; whoever changes the cluster next tells of it."""
    request = engine.unfinished
    if request is None:
        return
    if not request.done.wait(max(0.0, deadline - time.monotonic())):
        raise _unreachable(
            "TensorFlow is still making the change before, and makes it when they answer. Nothing more was changed: "
            "call resize() again to wait for it",
            _silent(engine, tasks_of(request.wanted)),
        )
    made = request.outcome()
    engine.unfinished, engine.untold = None, plan.joined(engine.untold, made) if engine.untold else made


class _Resize:
    """One change of a running program.

    Args:
        engine: the coordinator's.
        known: the program as it is.
        change: what to do.
        pods: which pod each task is now, as far as that is known.
        deadline: when to give up, by the monotonic clock.
    """

    def __init__(
        self,
        engine: ElasticEngine,
        known: plan.Known,
        change: Change,
        pods: Mapping[tuple[str, int], str],
        deadline: float,
    ) -> None:
        self._engine, self._known, self._change, self._pods, self._deadline = engine, known, change, pods, deadline
        self._jobs = plan.changed(known.jobs, change)
        self._gone = [task.index for task in change.removed if task.job == "worker"]
        self._replaced = [task.index for task in change.replaced if task.job == "worker"]
        #: Those that are another pod behind the same address: nobody finishes what the old one had in hand.
        self._lost = [index for index in self._replaced if known.jobs["worker"][index] == self._jobs["worker"][index]]
        self._holds: dict[int, Hold] = {}

    def make(self) -> Change:
        """Make the change; gives it as it turned out."""
        engine = self._engine
        try:
            for index in self._lost:
                engine.forget(("worker", index))
            self._holds |= engine.hold(self._lost)
            coming = _addresses((*self._change.added, *self._change.replaced))
            self._await_answers(coming | {("ps", index): address for index, address in self._jobs["ps"].items()})
            self._holds |= engine.hold({*self._gone, *self._replaced} - {*self._lost})
            self._await_holds()
        except BaseException:
            engine.release(self._holds)
            raise
        self._update()
        return self._outcome()

    def _await_answers(self, tasks: Mapping[tuple[str, int], str]) -> None:
        while silent := _silent(self._engine, tasks):
            tasks = silent
            if time.monotonic() > self._deadline:
                raise _unreachable("Nothing was changed: try again when they listen", silent)
            time.sleep(_LOOK)

    def _await_holds(self) -> None:
        engine, jobs = self._engine, tasks_of(self._engine.wanted)
        heard = dict.fromkeys(self._holds, time.monotonic())
        asked = time.monotonic()
        while busy := [index for index, hold in self._holds.items() if not hold.held.wait(_LOOK / len(self._holds))]:
            now = time.monotonic()
            if now > self._deadline:
                raise TasksBusyError(
                    f"{', '.join(f'/job:worker/task:{index}' for index in busy)} did not finish the closure in hand. "
                    "Nothing was changed: try again, with a longer timeout than a closure takes"
                )
            if now - asked < _ASK:
                continue
            asked = now
            answered = engine.answering({("worker", index): jobs["worker", index] for index in busy})
            for index in busy:
                engine.remind(index, self._holds[index])
                if ("worker", index) in answered:
                    heard[index] = now
                elif now - heard[index] > _SILENT:  # it is gone, and its closure is done by another one
                    with engine.cut_off({("worker", index)}):
                        pass

    def _update(self) -> None:
        engine = self._engine
        wanted = engine.wanted_copy()
        for job in wanted.cluster.job:
            if job.name in plan.ELASTIC:
                job.tasks.clear()
                job.tasks.update(self._jobs[job.name])
        request = Request(wanted, self._let_go, self._take_on, self._outcome, final=bool(self._gone))
        engine.ask(request)
        engine.unfinished = request
        try:
            request.done.wait(max(0.0, self._deadline - time.monotonic()))
        finally:
            withdrawn = engine.withdraw(request)
            if withdrawn:
                engine.unfinished = None
                engine.release(self._holds)
        if request.done.is_set():
            engine.unfinished = None
            return
        said = f" TensorFlow said: {request.error}." if request.error else ""
        now = (
            "Nothing was changed: try again"
            if withdrawn
            else "It goes on when they answer, and the change is made then: call resize() again to wait for it"
        )
        raise _unreachable(
            f"TensorFlow did not change its cluster in time.{said} {now}", _silent(engine, tasks_of(wanted))
        )

    def _outcome(self) -> Change:
        """Note which pods the tasks are now, and give the change as it turned out."""
        done = _addresses((*self._change.added, *self._change.replaced))
        self._engine.incarnations |= {task: pod for task, pod in self._pods.items() if task in done}
        return self._change

    def _let_go(self) -> None:
        """End the threads of the workers that go; in the engine's thread."""
        leaving = {index: self._holds[index] for index in self._gone}
        for index, hold in leaving.items():
            down = index in self._engine.down
            hold.decide(END, None if down else _farewell(index, self._known.jobs["worker"][index]))
        end = time.monotonic() + _FAREWELL
        for hold in leaving.values():
            hold.left.wait(max(0.0, end - time.monotonic()))

    def _take_on(self, down: Collection[int]) -> list[Any]:
        """Let the workers that came take closures; in the engine's thread."""
        engine, running = self._engine, self._engine.running
        coming = sorted(task for task in self._change.added if task.job == "worker")
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
            self._change = plan.without(self._change, out, reason)
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
        dict(engine.incarnations),
        reconnect.filtered_tasks(wanted.cluster_device_filters),
        lambda index: [
            text
            for text in tensorflow_api.held_elsewhere(wanted.job_name)
            if f" on /job:ps/replica:0/task:{index}/" in text
        ],
    )


def _addresses(tasks: Sequence[Task]) -> dict[tuple[str, int], str]:
    return {(task.job, task.index): task.address for task in tasks}


def _silent(engine: ElasticEngine, tasks: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    answered = engine.answering(tasks)
    return {task: address for task, address in tasks.items() if task not in answered}


def _unreachable(text: str, silent: Mapping[tuple[str, int], str]) -> TasksUnreachableError:
    tasks = [(job, index, address) for (job, index), address in sorted(silent.items())]
    missing = wait_for_tasks(tasks, timeout=0, grpc=True)
    who = f"{len(missing)} tasks do not answer. " if missing else ""
    return TasksUnreachableError("\n  ".join([f"{who}{text}{':' if missing else ''}", *map(str, missing)]), missing)


def _farewell(index: int, address: str) -> Callable[[], None]:
    """Note on a worker that the coordinator has let go of it: its server may end."""

    def write() -> None:
        tensorflow = tensorflow_api.load("resize()")
        # NB: on the worker's device these would be made under Python's lock: all threads would wait for one that hangs.
        with tensorflow.device("CPU:0"):
            name, content = map(tensorflow.constant, (contract.released_file(host_and_port(address)[1]), ""))
        with tensorflow.device(f"{device_name(index)}/device:CPU:0"):
            tensorflow.io.write_file(name, content)

    return write


def _incarnations(view: contract.View) -> dict[tuple[str, int], str]:
    return {(job, index): pod for job, tasks in view.incarnations.items() for index, pod in tasks.items()}
