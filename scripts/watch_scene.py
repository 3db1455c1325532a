"""The scene of `tfcluster status --watch` for `make terminal-pictures`: a cluster starts, grows, and loses a worker."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from scripts.demo import CLI, PLAY, ROOT, environment_of

#: The events while the cluster is watched, each after this number of seconds.
_SCENE: Final = (
    (14.0, ("scale", "digits", "4", "--local")),
    (28.0, ("local", "kill", "worker/1")),
    (38.0, ()),
)


def main() -> int:
    """Play the scene.

    Returns:
        The process's exit code.
    """
    with tempfile.TemporaryDirectory(prefix="tfcluster-scene-") as folder:
        environment = environment_of(folder)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(
            [*CLI, *PLAY, "--quiet"], cwd=ROOT, env=environment, start_new_session=True, **quiet
        ) as run:
            try:
                while not list(Path(folder).rglob("kubeconfig")):
                    time.sleep(0.05)
                time.sleep(1.0)
                _watch(environment)
            finally:
                run.send_signal(signal.SIGINT)
    return 0


def _watch(environment: dict[str, str]) -> None:
    began = time.monotonic()
    with subprocess.Popen([*CLI, "status", "digits", "--watch", "--local"], cwd=ROOT, env=environment) as watch:
        for at, words in _SCENE:
            time.sleep(max(0.0, began + at - time.monotonic()))
            if words:
                subprocess.run([*CLI, *words], cwd=ROOT, env=environment, check=True, capture_output=True)
        watch.send_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
