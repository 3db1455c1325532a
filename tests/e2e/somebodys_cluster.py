"""The cluster of ``make cluster`` as a user's existing one: known from a kubeconfig, used with tools on PATH."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Somebody:
    """A user with a kubeconfig, a kubectl and a helm, and nothing of this checkout."""

    environment: dict[str, str]
    folder: Path

    def run(self, command: str, *, timeout: float = 600, **variables: str) -> str:
        """Run a shell command; it must succeed."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def checkout(self) -> Path:
        """Copy this working tree with another operator: a kubelet would pull an image that it knows by one name."""
        copy = self.folder / "checkout"
        if copy.exists():
            return copy
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        for name in filter(lambda name: (ROOT / name).is_file(), listed):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)  # with its time: else make would create the environment again
        (copy / ".venv").symlink_to(ROOT / ".venv")
        with (copy / "operator" / "tfcluster_operator" / "__main__.py").open("a", encoding="utf-8") as program:
            program.write("# somebody's\n")
        return copy


def become(folder: Path, kubeconfig: Path) -> Somebody:
    tools = folder / "bin"
    tools.mkdir()
    for name in ("kubectl", "helm"):
        ours = ROOT / ".local" / "bin" / name
        program = ours.resolve() if ours.exists() else Path(shutil.which(name) or name)
        (tools / name).symlink_to(program)
    shutil.copy(kubeconfig, folder / "kubeconfig")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return Somebody({**os.environ, "PATH": path, "KUBECONFIG": str(folder / "kubeconfig")}, folder)
