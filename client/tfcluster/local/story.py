"""The output of ``tfcluster local run``: the logs of all tasks in one stream, with messages about their changes."""

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from tfcluster.local.store import Change
from tfcluster.terminal import wants_colour
from tfcluster_operator.declaration import ledger, naming, reasons
from tfcluster_operator.objects.pod import LAST_SIGNALLED, SIGNALLED

Object = Mapping[str, Any]

_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_green")
#: Events that other lines already report, or that do not matter on one machine.
_SILENT: Final = (
    *(reasons.CREATED, reasons.VIEW_CHANGED, reasons.POD_FAILED, reasons.POD_KEPT, reasons.HISTORY_LIMIT),
    *(reasons.TASKS_SUCCEEDED, reasons.TASK_FAILED, reasons.PERMANENT_EXIT_CODE),
    *(reasons.BACKOFF_LIMIT_EXCEEDED, reasons.DEADLINE_EXCEEDED),
)
_MISSING: Final = re.compile(rb"ModuleNotFoundError: No module named '(?P<module>\w+)|needs (?P<own>TensorFlow), which")
#: How Python reports that its program does not exist.
_NO_FILE: Final = re.compile(rb"can't open file '(?P<folder>.+)/[^/']+': \[Errno 2\]")
#: A back-off below this, in seconds, is not reported.
_SHORTEST_PAUSE: Final = 0.5


class Story:
    """Prints the output."""

    def __init__(
        self,
        clusters: list[str],
        address_of: Callable[[Object], str],
        *,
        broken: Callable[[], None],
        python: str,
        quiet: bool = False,
    ) -> None:
        self._strip = f"{clusters[0]}-" if len(clusters) == 1 else ""
        self._address_of, self._broken, self._python, self._quiet = address_of, broken, python, quiet
        self._colours: dict[str, str] = {}
        self._width = 0
        self._said: set[str] = set()
        self._begun: set[str] = set()
        self._silent = False

    def task(self, pod: str) -> str:
        return naming.first_pod_name(pod)[0].removeprefix(self._strip)

    def line(self, pod: str, container: str, text: bytes) -> None:
        if self._quiet or self._silent:
            return
        who = self.task(pod) + (f"/{container}" if container else "")
        self._width = max(self._width, len(who))
        colour = self._colours.setdefault(who, _COLOURS[len(self._colours) % len(_COLOURS)])
        prefix = f"{who.ljust(self._width)} | "
        if wants_colour(sys.stdout):
            prefix = click.style(prefix, fg=colour)
        try:
            click.echo(prefix + text.decode("utf-8", "replace"))
        except BrokenPipeError:
            self._quiet = True
            self._broken()
        if missing := _MISSING.search(text):
            module = (missing["module"] or missing["own"]).decode()
            self.once(f"{module} is not installed for {self._python}: install it there, or pass --python PATH")
        if lacking := _NO_FILE.search(text):
            folder = lacking["folder"].decode("utf-8", "replace")
            self.once(f"{folder} is in the image alone; if it is here, add --map {folder}=FOLDER")

    def say(self, words: str, *, colour: str | None = None) -> None:
        if not self._silent:
            with contextlib.suppress(OSError):
                click.secho(f"* {words}", err=True, fg=colour if wants_colour(sys.stderr) else None)

    def once(self, words: str) -> None:
        """Report something that can happen often, once."""
        if self._first(words):
            self.say(words, colour="yellow")

    def end(self) -> None:
        """Print no further messages: everything is being stopped."""
        self._silent = True

    def change(self, change: Change) -> None:
        """Report a change in the API server if users need it."""
        body = change.object
        if change.type == "DELETED":
            return
        if change.resource == "pods":
            self._tell_pod(body)
        elif change.resource == naming.PLURAL:
            self._tell_restarts(body)
        elif change.resource == "events" and change.type == "ADDED" and body["reason"] not in _SILENT:
            self.say(f"{body['reason']}: {body['message']}", colour="yellow" if body["type"] == "Warning" else None)

    def _first(self, *about: object) -> bool:
        key = " ".join(map(str, about))
        if key in self._said:
            return False
        self._said.add(key)
        return True

    def _tell_pod(self, pod: Object) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        task = self.task(metadata["name"])
        if phase == "Running" and "deletionTimestamp" not in metadata:
            self._tell_containers(task, pod)
        if phase == "Pending" or not self._first("phase", metadata["uid"], phase):
            return
        if phase == "Running":
            address = self._address_of(pod)
            again = " again" if task in self._begun else ""
            self._begun.add(task)
            self.say(f"{task} starts{again}" + (f" at {address}" if address else ""))
        elif "deletionTimestamp" in metadata:
            return
        elif phase == "Succeeded":
            self.say(f"{task} completed", colour="green")
        else:
            self.say(f"{task} {how_it_ended(pod)}", colour="red")

    def _tell_containers(self, task: str, pod: Object) -> None:
        """Report a failed container while the others of its pod still run."""
        status = pod["status"]
        if len((*(status.get("initContainerStatuses") or ()), *status["containerStatuses"])) > 1:
            for name, ended in _failed(status):
                if self._first("container", pod["metadata"]["uid"], name):
                    self.say(f"{task}/{name} {_how(ended)}", colour="red")

    def _tell_restarts(self, body: Object) -> None:
        known = ledger.read(body.get("status") or {})
        for job, record in known.jobs.items():
            for index, failing in record.failing.items():
                pause = failing.retry_at - time.time()
                if pause > _SHORTEST_PAUSE and self._first("retry", body["metadata"]["uid"], job, index, failing):
                    pod = naming.pod_name(body["metadata"]["name"], job, index)
                    self.say(f"{self.task(pod)} restarts in {pause:.0f} s")


def how_it_ended(pod: Object) -> str:
    """Describe how a failed pod ended: its first failed container, the exit code and the last line."""
    if reason := pod["status"].get("reason"):
        return f"ended: {reason}"
    return next((_how(ended) for _, ended in _failed(pod["status"])), "failed")


def _failed(status: Object) -> Iterator[tuple[str, Object]]:
    """Return the failed containers of a pod: the name of each, and how it ended."""
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if (ended := one["state"].get("terminated") or {}).get("exitCode"):
            yield one["name"], ended


def _how(ended: Object) -> str:
    code: int = ended["exitCode"]
    if SIGNALLED < code <= LAST_SIGNALLED:  # its last line is unrelated to the signal
        return f"was killed by signal {code - SIGNALLED}"
    lines = (ended.get("message") or "").strip().splitlines()
    return f"ended with exit code {code}" + (f": {lines[-1].strip()[:200]}" if lines else "")
