"""A run as JUnit's XML, which continuous integration shows: a test case for each task, and one for the verdict."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree  # noqa: ICN001 - its name says what it is

from memory_kubernetes import Change
from tfcluster.errors import TFClusterError
from tfcluster.local.story import how_it_ended
from tfcluster_operator.model import naming

Object = Mapping[str, Any]

#: So many of a task's last lines are in its test case.
_LINES: Final = 200
#: What XML 1.0 cannot hold.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class _Task:
    """What became of one task: of all its pods together."""

    namespace: str
    cluster: str
    job: str
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    began: float = 0.0
    ended: float = 0.0
    failure: str = ""
    runs: set[str] = field(default_factory=set)


class Record:
    """Remembers what becomes of each task.

    Args:
        clock: gives seconds, of a clock that never steps.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: dict[tuple[str, str], _Task] = {}
        self._began = clock()
        self._over = False

    def hear(self, namespace: str, pod: str, container: str, line: bytes) -> None:
        """Take in a line of a log."""
        del container
        if self._over:
            return
        task = self._tasks.get((namespace, naming.first_pod_name(pod)[0]))
        if task is not None:
            task.lines.append(line.decode("utf-8", "replace"))

    def change(self, change: Change) -> None:
        """Take in a change in the API server."""
        metadata = change.object["metadata"]
        labels = metadata.get("labels") or {}
        if self._over or change.resource != "pods" or naming.LABEL_JOB not in labels:
            return
        key = metadata["namespace"], naming.first_pod_name(metadata["name"])[0]
        if (task := self._tasks.get(key)) is None:
            task = self._tasks[key] = _Task(key[0], labels[naming.LABEL_CLUSTER], labels[naming.LABEL_JOB])
        phase = change.object["status"].get("phase")
        if phase == "Running" and metadata["uid"] not in task.runs:
            task.runs.add(metadata["uid"])
            task.began, task.ended, task.failure = task.began or self._clock(), 0.0, ""
        if phase in ("Succeeded", "Failed") and not task.ended:
            task.ended = self._clock()
            if phase == "Failed" and "deletionTimestamp" not in metadata:
                task.failure = how_it_ended(change.object)

    def end(self) -> None:
        """Take in no more: what is left is the end of everything."""
        self._over = True

    def write(self, path: Path, *, name: str, failure: str, verdict: str) -> None:
        """Write the report.

        Args:
            path: the file.
            name: the name of the run.
            failure: why it failed; "" where it did not.
            verdict: the words of the verdict.

        Raises:
            TFClusterError: the file cannot be written.
        """
        now = self._clock()
        suite = ElementTree.Element("testsuite", name=f"tfcluster {name}")
        for (_, pod), task in sorted(self._tasks.items()):
            about = f"{task.namespace}.{task.cluster}.{task.job}"
            seconds = (task.ended or now) - task.began if task.began else 0.0
            # NB: what a task that failed means is the verdict's to say: the report fails exactly if the run does.
            case = _case(suite, about, pod, seconds, task.failure if failure else "")
            if not task.runs:
                ElementTree.SubElement(case, "skipped", message="it never ran")
            how = f"; the last one {task.failure}" if task.failure else ""
            words = [f"{len(task.runs)} runs{how}; the last lines of its logs:", *task.lines]
            ElementTree.SubElement(case, "system-out").text = _plain("\n".join(words))
        case = _case(suite, name, "verdict", now - self._began, failure)
        ElementTree.SubElement(case, "system-out").text = _plain(verdict)
        cases = suite.findall("testcase")
        for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
            suite.set(attribute, str(_count(cases, tag)))
        suite.set("tests", str(len(cases)))
        suite.set("errors", "0")
        suite.set("time", f"{now - self._began:.3f}")
        whole = ElementTree.Element("testsuites")
        whole.append(suite)
        ElementTree.indent(whole)
        try:
            path.write_bytes(ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True) + b"\n")
        except OSError as error:
            raise _unwritable(path, error) from error


def check(path: Path) -> None:
    """See whether a report can be written, before hours of work depend on it; folders that lack are made.

    Args:
        path: the file.

    Raises:
        TFClusterError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> TFClusterError:
    return TFClusterError(
        f"the report {path} cannot be written: {error.strerror}", hint="Give --junit a file in a folder of yours."
    )


def _case(suite: ElementTree.Element, about: str, name: str, seconds: float, failure: str) -> ElementTree.Element:
    case = ElementTree.SubElement(suite, "testcase", classname=about, name=name, time=f"{seconds:.3f}")
    if failure:
        ElementTree.SubElement(case, "failure", message=_plain(failure)).text = _plain(failure)
    return case


def _count(cases: Iterable[ElementTree.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _plain(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
