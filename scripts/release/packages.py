"""The Python distribution: a wheel and the sources, built with the project's build backend."""

import os
import subprocess
import sys
from pathlib import Path

from scripts.images import ROOT


def build(folder: Path, *, epoch: int) -> None:
    """Build the wheel and the sources."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
