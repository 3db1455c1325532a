"""A TensorFlow cluster of real processes on loopback, each with the operator's view and environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fork_server import ENVIRONMENT, Forked, run
from resolver.resolver_world import Kubelet, view_of

from local_kubernetes.ports import free_ports
from tfcluster_resolver import contract

ROOT = Path(__file__).resolve().parent.parent.parent
#: A guard against hanging, in seconds: far above TensorFlow's import and a few steps on a busy machine.
DEADLINE = 240.0


def released(address: str) -> Path:
    """Return the file of a coordinator's message that releases a task."""
    return Path(contract.released_file(int(address.rpartition(":")[2])))


class LoopbackCluster:
    """Tasks on loopback; ``reach`` is the tasks per job with filters, by default two more than exist."""

    def __init__(
        self,
        folder: Path,
        jobs: Mapping[str, int],
        *,
        filters: Mapping[str, tuple[str, ...]] | None = None,
        limits: Mapping[str, Mapping[str, int]] | None = None,
        reach: Mapping[str, int] | None = None,
    ) -> None:
        self.folder = folder
        ports = iter(free_ports(sum(jobs.values())))
        self.addresses = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
        self.filters = dict(filters or {})
        self.limits = dict(limits or {})
        self.reach = {job: count + 2 for job, count in jobs.items()} | dict(reach or {})
        #: The pod of each task, by job and index; unknown ones are left out.
        self.pods: dict[str, dict[int, str]] = {}
        self._processes: dict[tuple[str, int], subprocess.Popen[str]] = {}
        self._started: list[subprocess.Popen[str]] = []
        #: The leaving tasks by job, as in the contract.
        self.leaving: dict[str, tuple[tuple[int, int], ...]] = {}
        self.publish(epoch=1)

    def publish(self, epoch: int) -> None:
        view = view_of(
            {job: tuple(tasks) for job, tasks in self.addresses.items()},
            name="loopback",
            namespace="tests",
            epoch=epoch,
            device_filters={
                job: (contract.FilterRange(0, self.reach[job], texts),) for job, texts in self.filters.items()
            },
            incarnations=self.pods,
            accelerators={job: contract.JobAccelerators(limits=counts) for job, counts in self.limits.items()},
            leaving=self.leaving,
        )
        Kubelet(self.folder).write(view)

    def add_task(self, job: str) -> int:
        """Declare one more task of a job, and return its index; it is not published yet."""
        self.addresses[job].append(f"127.0.0.1:{free_ports(1)[0]}")
        return len(self.addresses[job]) - 1

    def environment(self, job: str, index: int) -> dict[str, str]:
        return {
            **os.environ,
            **ENVIRONMENT,
            contract.ENV_DIRECTORY: str(self.folder),
            contract.ENV_JOB: job,
            contract.ENV_TASK_INDEX: str(index),
            contract.ENV_ADDRESS: self.addresses[job][index],
            "PYTHONPATH": str(ROOT / "resolver"),
        }

    def start(
        self, job: str, index: int, *words: str, stdin: int | None = None, fresh: bool = False
    ) -> subprocess.Popen[str]:
        process = (subprocess.Popen if fresh else Forked)(
            [sys.executable, *words],
            env=self.environment(job, index),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"{job}-{index}.log").open("a"),
            text=True,
        )
        self._processes[job, index] = process
        self._started.append(process)
        return process

    def serve(self, *tasks: tuple[str, int]) -> list[subprocess.Popen[str]]:
        """Start the servers of some tasks, and wait until each reports that it serves."""
        servers = [self.start(job, index, "-m", "tfcluster_resolver", "serve") for job, index in tasks]
        for (job, index), server in zip(tasks, servers, strict=True):
            self.await_line(server, f"serving /job:{job}/task:{index} of tests/loopback")
        return servers

    def serve_all(self, *jobs: str) -> None:
        self.serve(*((job, index) for job in jobs for index in range(len(self.addresses[job]))))

    def await_line(self, process: subprocess.Popen[str], words: str) -> str:
        """Read a process's output up to the line with these words."""
        assert process.stdout is not None
        for line in process.stdout:
            if words in line:
                return line
        raise AssertionError(f"{process.args} ended with {process.wait()} before it said {words!r}; {self.logs()}")

    def run(self, job: str, index: int, *words: str, fresh: bool = False) -> subprocess.CompletedProcess[str]:
        return run([*words], env=self.environment(job, index), timeout=DEADLINE, fresh=fresh)

    def program(self, text: str, job: str = "chief", index: int = 0, *, fresh: bool = False) -> str:
        done = self.run(job, index, "-c", text, fresh=fresh)
        assert done.returncode == 0, done.stderr[-6000:] + self.logs()
        return done.stdout

    def process(self, job: str, index: int) -> subprocess.Popen[str]:
        return self._processes[job, index]

    def kill(self, job: str, index: int) -> None:
        self._processes[job, index].kill()
        self._processes[job, index].wait()

    def keep(self, sizes: Mapping[str, int]) -> None:
        """End the processes of tasks beyond these sizes, and those that another process replaced."""
        kept = {self._processes.get((job, index)) for job, size in sizes.items() for index in range(size)}
        for process in self._started:
            if process not in kept and process.poll() is None:
                process.kill()
                process.wait()

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
