"""Build the files of a release from copies of the working tree, at one time, for one image."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "registry.example/team/tfcluster-operator"
#: 2026-01-01: the timestamp of the tests' files.
EPOCH = 1767225600


def copy_tree(to: Path) -> Path:
    """Copy the files of the working tree that git tracks or does not ignore, with their changes."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def build_release(checkout: Path, to: Path, *, umask: int = 0o022, **environment: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.release", "build", "--folder", to, "--image", IMAGE],
        cwd=checkout,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)} | environment,
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return to
