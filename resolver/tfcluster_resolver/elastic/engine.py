"""The thread that changes TensorFlow's cluster for one ClusterCoordinator, and what becomes of lost workers.

TensorFlow is never asked while a task of the new cluster does not answer: it would wait for it, forever if its pod
was deleted.  So a worker that is down is left out until it answers again, and nothing is done while a ps is down:
TensorFlow reports that to the program itself.  One thread does all of it, because TensorFlow crashes if two change
its cluster at the same time; the closures of the other workers continue in the meantime.

A worker's thread is *held* between two closures before its worker leaves or is replaced, so no closure is lost.
Objects on a lost worker are dropped only after TensorFlow's cluster has changed: TensorFlow would wait for the worker.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from tfcluster_resolver._tensorflow.workers import GO_ON, RECOVER, Hold, Running
from tfcluster_resolver.elastic.connections import Peer, Sockets
from tfcluster_resolver.elastic.plan import Change
from tfcluster_resolver.waiting.probes import Probes

_log: Final = logging.getLogger(__name__)

#: Seconds that the engine's thread has to end.
_END: Final = 2.0
#: Seconds between two checks of tasks that do not answer.
_LOOK_AGAIN: Final = 0.25
#: TensorFlow's work on its cluster takes milliseconds; after this number of seconds it is checked.
_PATIENCE: Final = 2.0
#: Seconds between two checks if no problem is known.
_IDLE: Final = 5.0

#: Job and index of a task.
Task = tuple[str, int]


class Request:
    """A change that the thread is to make; a final one can no longer be taken back once ``before`` was called."""

    def __init__(self, wanted: Any, change: Change, *, final: bool = False) -> None:
        self.wanted, self.change, self.final = wanted, change, final
        self.previous: Any = None
        self.begun = self.updating = False
        self.error: Exception | None = None
        self.done = threading.Event()

    def before(self) -> None:
        """TensorFlow is about to be asked."""

    def after(self, down: Collection[int]) -> list[Any]:  # noqa: ARG002 - what a change may need
        """TensorFlow's cluster has changed, without the workers that are down; return the objects kept until then."""
        return []


def tasks_of(server_def: Any) -> dict[Task, str]:
    """Return the addresses of a cluster's tasks but the own one's."""
    return {
        (job.name, index): address
        for job in server_def.cluster.job
        for index, address in job.tasks.items()
        if job.name != server_def.job_name
    }


def without(server_def: Any, workers: Collection[int]) -> Any:
    """Copy a cluster, without some of its workers."""
    new = copy.deepcopy(server_def)
    for job in new.cluster.job:
        if job.name == "worker":
            for index in workers:
                job.tasks.pop(index, None)
    return new


class ElasticEngine:
    """Takes over the handling of lost workers of one coordinator."""

    def __init__(self, running: Running) -> None:
        self.running = running
        #: Held while the cluster's size is changed.
        self.resizing = threading.Lock()
        #: The tasks that are not their first pod, and which one it is; None before the first change.
        self.incarnations: dict[Task, str] | None = None
        self.sockets = Sockets()
        #: The change that a caller stopped waiting for; TensorFlow can have made it since.
        self.unfinished: Request | None = None
        #: Changes since then that were not returned to a caller.
        self.untold: Change | None = None
        self.wanted = running.server_def
        self._state = threading.Condition()
        self._request: Request | None = None
        self._dirty = False
        self._failed: set[int] = set()
        self._incomplete: set[int] = set()
        self._out: set[int] = set()
        self._holds: dict[int, Hold] = {}
        self._kept: list[Any] = []
        self._peers: dict[str, set[Peer]] = {}
        self._left: dict[Task, str] = {}
        self._ending = False
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="tfcluster-elastic", daemon=True)

    def begin(self) -> bool:
        """Take over and start the thread; returns whether TensorFlow allowed it."""
        if not self.running.take_over(self):
            return False
        self._thread.start()
        # A thread inside of TensorFlow crashes an interpreter that ends.
        atexit.register(_stop, weakref.ref(self))
        return True

    # For TensorFlow's threads.

    def lost(self, index: int, values: list[Any], *, incomplete: bool) -> None:
        with self._state:
            self._failed.add(index)
            self._kept += values
            if incomplete:
                self._incomplete.add(index)

    def await_recovery(self, index: int) -> str:
        while True:
            with self._state:
                self._state.wait_for(
                    lambda: index in self._holds or index not in self._failed | self._out or self.running.stopped
                )
                hold = self._holds.get(index)
            if hold is None:
                return RECOVER
            fate = hold.wait()
            if fate != GO_ON:
                return fate

    # For who changes the cluster's size.

    def hold(self, indices: Collection[int]) -> dict[int, Hold]:
        """Begin to hold the threads of some workers between two closures."""
        holds = {index: Hold() for index in indices}
        with self._state:
            self._holds |= holds
            self._state.notify_all()
        for index, hold in holds.items():
            self.running.order(index, hold.act)
        self.running.recovered()  # wakes those that wait for another worker
        return holds

    def release(self, holds: Mapping[int, Hold], fate: str = GO_ON) -> None:
        with self._state:
            for index, hold in holds.items():
                if self._holds.get(index) is hold:
                    del self._holds[index]
        for hold in holds.values():
            hold.decide(fate)

    def ask(self, request: Request) -> None:
        with self._state:
            self._request, request.previous = request, self.wanted
            self.wanted = request.wanted
        self.running.wake()

    def withdraw(self, request: Request) -> bool:
        """Take a change back; returns whether that was still possible."""
        with self._state:
            if request.done.is_set() or request.updating or (request.begun and request.final):
                return False
            self._request, self.wanted = None, request.previous
            self._dirty = self._dirty or request.begun  # whether TensorFlow finished it is unknown
            return True

    def forget(self, task: Task) -> None:
        """Close the connections to a task's earlier pod, and connect again."""
        address = tasks_of(self.wanted).get(task)
        with self._state:
            self._dirty = True
            peers = self._peers.pop(address, set()) if address else set()
        with self.sockets.cut_off(peers):
            pass

    def leave(self, task: Task, pod: str) -> None:
        """Drop the pod that a task was, once, without waiting for the new one."""
        if self._left.get(task) != pod:
            self._left[task] = pod
            self.forget(task)
            self.running.wake()

    def leave_out(self, workers: Collection[int]) -> None:
        """Remove some workers from TensorFlow's cluster that were just added."""
        with self._state:
            self.wanted, self._dirty = without(self.wanted, workers), True

    def cut_off(self, tasks: Collection[Task]) -> contextlib.AbstractContextManager[None]:
        """Close the connections to some tasks for a while."""
        there = tasks_of(self.wanted) | tasks_of(self.running.server_def)
        with self._state:
            return self.sockets.cut_off({peer for task in tasks for peer in self._peers.get(there.get(task, ""), ())})

    def answering(self, tasks: Mapping[Task, str]) -> set[Task]:
        """Return those of some tasks that answer within a second."""
        with contextlib.closing(Probes(grpc=True)) as probes:
            probes.want([(*task, address) for task, address in tasks.items()])
            probes.look_once()
            found = probes.reached()
        with self._state:
            for task, peer in found.items():
                self._peers.setdefault(tasks[task], set()).add(peer)
        self.sockets.meet(probes.tried)
        return set(found)

    def silent(self, tasks: Mapping[Task, str]) -> dict[Task, str]:
        """Return those of some tasks that do not answer within a second."""
        answered = self.answering(tasks)
        return {task: address for task, address in tasks.items() if task not in answered}

    @property
    def down(self) -> set[int]:
        """The workers that failed, or that TensorFlow's cluster does not have at the moment."""
        with self._state:
            return self._failed | self._out

    # The thread.

    def _run(self) -> None:
        with contextlib.suppress(Exception):
            self.answering(tasks_of(self.wanted))  # learn their peers while they are well
        while not self._over():
            try:
                if self.running.wait(_LOOK_AGAIN if self._unsettled() else _IDLE):
                    # A failed worker waits inside of TensorFlow first; from here on it waits for its own worker, or is
                    # held.  If its closure began before the take-over, it tries once more and then arrives here.
                    self.running.recovered()
                if not self._over() and self._unsettled():
                    self._settle()
            except Exception as error:  # noqa: BLE001 - such as a limit of threads or descriptors: no worker would come back
                self._tell(error)
                time.sleep(_LOOK_AGAIN)
        with self._state:
            holds = dict(self._holds)
            self._state.notify_all()
        self.release(holds)
        self.running.close()

    def stop(self) -> None:
        """End the thread, unless it is inside of TensorFlow."""
        self._ending = True
        self.running.wake()
        self._thread.join(_END)

    def _over(self) -> bool:
        return self._ending or self.running.stopped

    def _unsettled(self) -> bool:
        with self._state:
            return bool(self._dirty or self._failed or self._out or self._request)

    def _settle(self) -> None:
        """Update TensorFlow's cluster to the wanted one, as far as its tasks answer."""
        with self._state:
            request, wanted = self._request, self.wanted
            lost = {("worker", index) for index in (self._failed | self._out) - self._holds.keys()}
            asked = request is not None or self._dirty
        tasks = tasks_of(wanted)
        if not asked and not self.answering({task: tasks[task] for task in lost & tasks.keys()}):
            return
        down = self.silent(tasks).keys()
        if any(job != "worker" for job, _ in down):
            return
        with self._state:
            if request is not self._request:
                return
            failed, kept, self._kept, self._dirty = set(self._failed), self._kept, [], False
            # An incomplete worker is left out once: TensorFlow sends all functions to a worker that it adds.
            left_out = down | ({("worker", index) for index in self._incomplete} & tasks.keys())
            workers_down, self._incomplete = {index for _, index in left_out}, set()
            if request is not None:
                request.begun = request.updating = True
        try:
            if request is not None:
                request.before()
            before = tasks_of(self.running.server_def)
            leaving = {task: address for task, address in before.items() if tasks.get(task) != address}
            gone = down | self.silent(leaving).keys()  # TensorFlow would wait for their last answer
            answering = {task: tasks[task] for task in tasks.keys() - down}
            began = time.monotonic()
            with self.sockets.watched(), self.cut_off(gone), self._guarded(answering):
                self.running.update(without(wanted, workers_down))
            _log.debug(
                "TensorFlow's cluster is updated in %.2f s, without %s", time.monotonic() - began, sorted(left_out)
            )
        except Exception as error:  # noqa: BLE001 - whatever TensorFlow raises
            self._not_settled(request, error, kept)
            return
        kept += request.after(workers_down) if request is not None else []
        with self._state:
            self._out = workers_down
            self._failed = (self._failed - failed) & {index for job, index in tasks if job == "worker"}
            if self._request is request:  # else another one was added while TensorFlow was busy: it is next
                self._request = None
            self._state.notify_all()
        self.running.recovered()
        del kept
        if request is not None:
            request.done.set()  # it counts as being made until then, or it could still be taken back

    @contextlib.contextmanager
    def _guarded(self, tasks: Mapping[Task, str]) -> Iterator[None]:
        """Make TensorFlow give up on workers that hang while it changes its cluster: all closures wait for that."""
        over = threading.Event()

        def guard() -> None:
            while not over.wait(_PATIENCE):
                with self.cut_off({task for task in self.silent(tasks) if task[0] == "worker"}):
                    over.wait(_LOOK_AGAIN)

        threading.Thread(target=guard, name="tfcluster-guard", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _not_settled(self, request: Request | None, error: Exception, kept: list[Any]) -> None:
        again = request is not None or self.running.can_try_again(error)
        with self._state:
            self._kept = kept + self._kept
            self._dirty = again
            if request is not None:
                request.error, request.updating = error, False
        if again:
            self._tell(error)
        else:  # a ps was lost: the program gets the error, as from TensorFlow
            self.running.recovered(error)

    def _tell(self, error: Exception) -> None:
        """Log an error once; the thread tries again."""
        if str(error) != self._told:
            self._told = str(error)
            _log.warning("TensorFlow's cluster is not what it should be yet: %s", error)


def _stop(engine: weakref.ref[ElasticEngine]) -> None:
    there = engine()
    if there is not None:
        there.stop()
