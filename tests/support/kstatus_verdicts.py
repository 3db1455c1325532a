"""The status of a TFCluster in tools that use kstatus (Flux, Argo CD, kpt and others), by the rules of kstatus.

kstatus/main.go calls sigs.k8s.io/cli-utils, at the version in its go.mod.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.go_toolchain import run_go

from .objects import Object

SOURCE = Path(__file__).parent / "kstatus"


@dataclass(frozen=True, slots=True)
class Verdict:
    status: str
    message: str


def program() -> Path:
    """Return the program that calls kstatus, built once for each content of its sources."""

    def build(folder: Path) -> None:
        run_go(
            ["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", folder / "kstatus", "."], folder=SOURCE
        )

    key = content_hash(SOURCE / "main.go", SOURCE / "go.mod", SOURCE / "go.sum")
    folder = cached("kstatus", key, build, usually="30 s", why="the judge of what Flux and others make of a TFCluster")
    return folder / "kstatus"


def judge(*found: Object) -> list[Verdict]:
    answer = subprocess.run(
        [program()], input="\n".join(map(json.dumps, found)), capture_output=True, text=True, check=True
    )
    return [Verdict(*line.split("\t", 1)) for line in answer.stdout.splitlines()]
