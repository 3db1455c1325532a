"""The operator as a real process: started, killed, measured, and its log read."""

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

#: An environment with only the operator's own dependencies: kopf loads the official client if it is installed.
PYTHON: Final = os.environ.get("TFCLUSTER_OPERATOR_PYTHON", sys.executable)
_ROOT: Final = Path(__file__).resolve().parents[2]


class OperatorProcess:
    """One operator at a time; all runs append to the same log."""

    def __init__(self, *, kubeconfig: Path, log: Path) -> None:
        self.log = log
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
        """Start the operator, by default for all namespaces, and wait until it is ready."""
        assert not self.running, "the operator runs already"
        self._start_as = (kubeconfig or self.kubeconfig, tuple(arguments))
        election = () if "--leader-election" in arguments else ("--no-leader-election",)
        ports = ("--health-port", str(self._port), "--metrics-port", str(self._metrics_port))
        command = [PYTHON, "-m", "tfcluster_operator", *arguments, *election, *ports]
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._start_as[0]),
            "PYTHONPATH": os.pathsep.join(str(_ROOT / folder) for folder in ("operator", "resolver")),
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        if wait:
            self.wait_ready()

    def restore(self) -> None:
        if not self.running or self._start_as != (self.kubeconfig, ALL_NAMESPACES):
            self.kill()
            self.start()

    def wait_ready(self) -> None:
        def probe() -> str:
            if not self.running:
                raise AssertionError(f"the operator ended with {self.exit_code}:\n{self.tail()}")
            return self.readiness()

        eventually(probe, lambda answer: answer == "200", what="the operator is ready")

    def readiness(self) -> str:
        """Request /readyz; return the status code, or the error."""
        return self.get_health("readyz")

    def get_health(self, path: str) -> str:
        """Request a path of the health port; return the status code, or the error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=GUARD) as answer:
                return str(answer.status)
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError as error:
            return repr(error)

    def scrape(self, accept: str = "") -> tuple[str, str]:
        """Request the metrics as Prometheus does."""
        address = f"http://127.0.0.1:{self._metrics_port}/metrics"
        asked = urllib.request.Request(address, headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(asked, timeout=GUARD) as answer:  # noqa: S310 - likewise
            return answer.read().decode(), answer.headers["Content-Type"]

    @property
    def metrics_port(self) -> int:
        return self._metrics_port

    @property
    def health_port(self) -> int:
        return self._port

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self, *, within: float = GUARD) -> int:
        assert self._process is not None, "the operator was never started"
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(within)

    def tail(self, *, start: int = 0, characters: int = 4000) -> str:
        return self.log.read_bytes()[start:].decode(errors="replace")[-characters:]

    def forget_peak(self) -> None:
        """Reset the peak of resident memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def memory(self) -> tuple[int, int]:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        values = dict(line.split(":", 1) for line in status.splitlines())
        return tuple(int(values[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]  # two keys
