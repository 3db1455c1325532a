"""Reads the logs of many tasks one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from tfcluster.errors import RefusedError, TFClusterError
from tfcluster.kubernetes_api import PODS, TFCLUSTERS
from tfcluster.log_lines import LogLine
from tfcluster.log_plan import Sight, not_started, without_pods
from tfcluster.log_pods import LogPod
from tfcluster.log_reader import LogReader, Window
from tfcluster.log_stream import LogSource
from tfcluster_operator.declaration import naming

#: How often a log is opened again where the stream broke.
_ATTEMPTS: Final = 3


class LogTurns(LogSource):
    """Reads one log after the other, in a thread of its own; see LogSource."""

    def batches(self) -> Iterator[list[LogLine]]:
        """Give the lines, those of a task together.

        Raises:
            NoClusterError: there is no such TFCluster.
            NoTaskError: it has no such task.
            RefusedError: the API server said no.
            TFClusterError: some logs could not be read; those that could are out.
        """
        cluster = self.api.find(TFCLUSTERS, self.name, self.namespace)
        pods = self.api.list(PODS, self.namespace, labels=f"{naming.LABEL_CLUSTER}={self.name}").items
        sight = self.sight(cluster, pods)
        thread = threading.Thread(target=self._read, args=(sight,), daemon=True, name=f"logs-of-{self.name}")
        thread.start()
        try:
            yield from self.taken()
        finally:
            self.channel.close()

    def _read(self, sight: Sight) -> None:
        failures: list[TFClusterError] = []
        try:
            for pod, window in self._chosen(sight):
                reader = LogReader(
                    self.api, pod, self.namespace, window, give=self.channel.put, tell=self.say, attempts=_ATTEMPTS
                )
                reader.note_over()
                reader.run()
                if isinstance(reader.failure, RefusedError) and reader.failure.status in {401, 403}:
                    # NB: it is the same of all the others.
                    self.failure = reader.failure
                    return
                if reader.failure is not None:
                    failures.append(reader.failure)
                    self.say(f"{pod.task}: the log of pod {pod.name} cannot be read: {reader.failure}")
            if failures:
                several = f"{len(failures)} logs" if len(failures) > 1 else "a log"
                self.failure = TFClusterError(f"{several} could not be read", hint=failures[0].hint)
        except Exception as error:  # noqa: BLE001 - whoever takes the lines raises it
            self.failure = error
        finally:
            self.channel.close()

    def _chosen(self, sight: Sight) -> Iterator[tuple[LogPod, Window]]:
        """Choose the pods, and say which tasks have none."""
        window, previous = self.request.window, self.request.previous
        if not previous:
            if words := without_pods(sight.tasks, sight.pods, sight.cluster):
                self.say(words)
            for line, _ in not_started([one for one in sight.pods if one.state == "waiting"]):
                self.say(line)
        for task, group in groupby(sight.pods, key=lambda pod: pod.task):
            pods = [pod for pod in group if pod.container]
            if previous:
                earlier = [(pod, window) for pod in pods if pod.kept and pod.readable]
                earlier += [(pod, replace(window, previous=True)) for pod in pods if pod.restarted]
                if not earlier:
                    self.say(f"{task}: no earlier log: no failed pod of it is kept (spec.failedPodsHistoryLimit)")
                yield from earlier
                continue
            speaking = [pod for pod in pods if not pod.kept] or pods
            if speaking and speaking[-1].readable:
                yield speaking[-1], window
