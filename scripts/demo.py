"""`make demo`: a TensorFlow cluster on this machine that trains, resizes and recovers, with explanations.

It runs the commands that a user would type, and shows them.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_MANIFEST: Final = "examples/parameter-server.yaml"
#: Runs it; the image's /opt/examples is the local folder examples.
PLAY: Final = ("local", "run", "-f", _MANIFEST, "--map", "/opt/examples=examples")
_NAME: Final = "digits"
CLI: Final = (sys.executable, "-m", "tfcluster")
#: The lines to show of a training that never ends: the first steps, and the chief's lines about the cluster.
_PASS: Final = re.compile(r"^chief-0 +\| (pass \d+: .*)$")
_EPOCH: Final = re.compile(r"^chief-0 +\| (cluster epoch .*worker/3.*)$")
_NOTE: Final = re.compile(r"^\* (.*)$")
_PATIENCE: Final = 180.0


class DemoError(Exception):
    """A step did not finish; the message says which."""


class Run:
    """``tfcluster local run`` in the background, and its output."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        _prompt(PLAY)
        # In a new session Ctrl-C reaches only this program, which ends the run in order.
        self._process = subprocess.Popen(
            [*CLI, *PLAY],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()

    @property
    def said(self) -> int:
        """The number of printed lines."""
        with self._news:
            return len(self._lines)

    def show(self, wanted: re.Pattern[str], *, count: int = 1, since: int = 0, what: str) -> None:
        """Print the next lines that match.

        Raises:
            DemoError: they do not appear.
        """
        end, at = time.monotonic() + _PATIENCE, since
        with self._news:
            while count:
                if at == len(self._lines):
                    if not self._news.wait(end - time.monotonic()) or self._process.poll() is not None:
                        raise DemoError(f"{what} did not come. The last lines:\n" + "\n".join(self._lines[-15:]))
                    continue
                found = wanted.match(self._lines[at])
                at += 1
                if found:
                    print(f"  {found[1]}", flush=True)
                    count -= 1

    def end(self) -> None:
        """End it like Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()


def main() -> int:
    """Run the demo."""
    try:
        with _run() as (run, tell):
            _train(run)
            _resize(run, tell)
            _heal(run, tell)
    except DemoError as error:
        print(f"\nThe demo stopped: {error}\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    _say_goodbye()
    return 0


def environment_of(folder: str) -> dict[str, str]:
    """Return the environment that uses ``tfcluster`` of this checkout, with its state in a folder."""
    paths = [str(ROOT / part) for part in ("client", "operator", "resolver", ".")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "XDG_STATE_HOME": folder,
    }


@contextmanager
def _run() -> Iterator[tuple[Run, Callable[..., None]]]:
    """Start the cluster; everything of it is removed at the end."""
    _headline("One manifest, no Kubernetes: a chief, two workers and a parameter server as processes of this machine")
    with tempfile.TemporaryDirectory(prefix="tfcluster-demo-") as folder:
        environment = environment_of(folder)

        def tell(*arguments: str) -> None:
            """Show and run a command."""
            _prompt(arguments)
            done = subprocess.run([*CLI, *arguments], cwd=ROOT, env=environment, check=False, timeout=_PATIENCE)
            if done.returncode:
                raise DemoError(f"tfcluster {' '.join(arguments)} ended with {done.returncode}")

        # By default these two end Python immediately, and leave the cluster and its folder.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda got, _: sys.exit(128 + got))
        run = Run(environment)
        try:
            yield run, tell
        finally:
            run.end()


def _train(run: Run) -> None:
    began = time.monotonic()
    run.show(_PASS, what="the first pass of the training")
    took = time.monotonic() - began
    print(f"  … {took:.0f} s after the start; most of it is the import of TensorFlow in four processes")
    run.show(_PASS, count=2, since=run.said, what="the next passes")


def _resize(run: Run, tell: Callable[..., None]) -> None:
    _headline("Scale the workers from two to four while it trains")
    before = run.said
    tell("scale", _NAME, "4", "--local")
    tell("wait", _NAME, "--for", "resized", "--local")
    run.show(_EPOCH, since=before, what="the last new worker in the chief's program")
    tell("status", _NAME, "--local")


def _heal(run: Run, tell: Callable[..., None]) -> None:
    _headline("Kill a worker")
    before = run.said
    tell("local", "kill", "worker/1")
    run.show(_NOTE, since=before, what="the operator's word on the lost worker")
    tell("wait", _NAME, "--for", "resized", "--local")
    print("  worker 1 is back at its address; the training went on meanwhile:")
    run.show(_PASS, count=2, since=run.said, what="more passes")


def _say_goodbye() -> None:
    _headline("What to try next")
    print(
        textwrap.dedent(
            f"""
            The same on a Kubernetes that is started for you (12 minutes the first time; needs root or Docker):

                make demo-kubernetes

            Your own manifest, here:

                pip install 'tfcluster[client]'              # or: pip install -e '.[client]' in this folder
                tfcluster local run -f FILE
                tfcluster create my-first --workers 2 --ps 1 --image IMAGE --script train.py > first.yaml
                tfcluster render -f {_MANIFEST} --views      # who sees whom
                tfcluster convert -f TFJOB.yaml              # coming from Kubeflow's TFJob
            """
        ).lstrip()
    )


def _headline(text: str) -> None:
    print(f"\n== {text}\n", flush=True)


def _prompt(arguments: tuple[str, ...]) -> None:
    print(f"$ tfcluster {' '.join(arguments)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
