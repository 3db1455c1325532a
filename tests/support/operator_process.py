"""The operator as the real process that it is in production: started, killed, measured, and its log read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from local_kubernetes.ports import free_ports

from .waiting import GUARD, eventually

ALL_NAMESPACES: Final = ("--all-namespaces",)

#: An environment that holds no more than the operator's own dependencies: kopf loads the official client where it is.
PYTHON: Final = os.environ.get("TFCLUSTER_OPERATOR_PYTHON", sys.executable)
_ROOT: Final = Path(__file__).resolve().parents[2]


class OperatorProcess:
    """One operator at a time; every run appends to the same log.

    Args:
        kubeconfig: what the operator connects with unless a start says otherwise.
        log: the file for its output.
        sources: the folder of its sources.
    """

    def __init__(self, *, kubeconfig: Path, log: Path, sources: Path = _ROOT) -> None:
        self.log = log
        self._sources = sources
        self.kubeconfig = kubeconfig
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._metrics_port = free_ports(2)
        self._start_as: tuple[Path, tuple[str, ...]] = (kubeconfig, ALL_NAMESPACES)
        log.touch()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the operator was never started"
        return self._process.pid

    def start(
        self,
        *,
        kubeconfig: Path | None = None,
        arguments: Sequence[str] = ALL_NAMESPACES,
        wait: bool = True,
    ) -> None:
        """Start the operator.

        Args:
            kubeconfig: what it connects with, if not the usual one.
            arguments: its scope; with ``--leader-election`` and its like, it needs the rights to its Lease.
            wait: whether to return only when it says that it is ready.
        """
        assert not self.running, "the operator runs already"
        self._start_as = (kubeconfig or self.kubeconfig, tuple(arguments))
        election = () if "--leader-election" in arguments else ("--no-leader-election",)
        ports = ("--health-port", str(self._port), "--metrics-port", str(self._metrics_port))
        command = [PYTHON, "-m", "tfcluster_operator", *arguments, *election, *ports]
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._start_as[0]),
            "PYTHONPATH": os.pathsep.join(str(self._sources / folder) for folder in ("operator", "resolver")),
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        if wait:
            self.wait_ready()

    def restore(self) -> None:
        """Have it run for all namespaces, whatever was done to it before."""
        if not self.running or self._start_as != (self.kubeconfig, ALL_NAMESPACES):
            self.kill()
            self.start()

    def wait_ready(self) -> None:
        """Return when the operator says that it is ready; fail at once if it has ended."""

        def probe() -> str:
            if not self.running:
                raise AssertionError(f"the operator ended with {self.exit_code}:\n{self.tail()}")
            return self.readiness()

        eventually(probe, lambda answer: answer == "200", what="the operator is ready")

    def readiness(self) -> str:
        """Ask /readyz: the status code, or why there is none."""
        return self.get_health("readyz")

    def get_health(self, path: str) -> str:
        """Ask a path of the health port: the status code, or why there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=GUARD) as answer:
                return str(answer.status)
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError as error:
            return repr(error)

    def scrape(self, accept: str = "") -> tuple[str, str]:
        """Ask for the metrics as Prometheus does."""
        address = f"http://127.0.0.1:{self._metrics_port}/metrics"
        asked = urllib.request.Request(address, headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(asked, timeout=GUARD) as answer:  # noqa: S310 - likewise
            return answer.read().decode(), answer.headers["Content-Type"]

    @property
    def metrics_port(self) -> int:
        """Where it serves its metrics on loopback."""
        return self._metrics_port

    @property
    def health_port(self) -> int:
        """Where it serves its probes on loopback."""
        return self._port

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def kill(self) -> None:
        """End the operator as a crash does, by SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self, *, within: float = GUARD) -> int:
        """Ask the operator to end, by SIGTERM."""
        assert self._process is not None, "the operator was never started"
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(within)

    def tail(self, *, start: int = 0, characters: int = 4000) -> str:
        """Read the end of the log, from a position on."""
        return self.log.read_bytes()[start:].decode(errors="replace")[-characters:]

    def cpu_seconds(self) -> float:
        """Measure the processor time used so far, user and system, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def forget_peak(self) -> None:
        """Begin a new measurement of the peak of resident memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def memory(self) -> tuple[int, int]:
        """Measure the resident memory: now and at its peak, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        values = dict(line.split(":", 1) for line in status.splitlines())
        return tuple(int(values[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]  # two keys
