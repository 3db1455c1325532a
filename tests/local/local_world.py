"""Helpers for the tests of `tfcluster local`: manifests of small Python programs, and runs as separate processes."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from support.waiting import GUARD, eventually

Object = dict[str, Any]


def job(program: str, *, replicas: int = 1, container: Mapping[str, Any] | None = None, **pod: Any) -> Object:
    """Declare a job whose tasks run a Python program."""
    main = {"name": "tensorflow", "image": "none", "command": ["python3", "-c", program], **(container or {})}
    return {"replicas": replicas, "template": {"spec": {"containers": [main], **pod}}}


def cluster(name: str = "small", *, jobs: Mapping[str, Object], **spec: Any) -> Object:
    meta = {"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "metadata": {"name": name}}
    return {**meta, "spec": {"jobs": dict(jobs), **spec}}


class Run:
    """A `tfcluster local run` in its own process.

    Args:
        folder: for its manifest, its output and its state.
        objects: the content of the manifest, or its path.
        options: more words of the command line.
        env: more environment variables.
        piped: leave its standard output to the test.
    """

    def __init__(
        self,
        folder: Path,
        *objects: Object | Path,
        options: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state = folder / "state"
        manifest = objects[0] if isinstance(objects[0], Path) else folder / "manifest.yaml"
        if manifest != objects[0]:
            manifest.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        self._out, self._err = folder / "out.log", folder / "err.log"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tfcluster", "local", "run", "-f", str(manifest), *options],
                stdout=subprocess.PIPE if piped else out,
                stderr=err,
                env={**os.environ, "XDG_STATE_HOME": str(self.state), **(env or {})},
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def await_line(self, words: str) -> str:
        def found() -> str:
            return next((line for line in self.out.splitlines() if words in line), "")

        return eventually(found, what=f"a task says {words!r}; so far: {self.err}{self.out}")

    def end(self) -> int:
        return self.process.wait(GUARD)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def tfcluster(
        self, *words: str, state: Mapping[str, str] | None = None, within: float = GUARD
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tfcluster", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(self.state), **(state or {})},
            timeout=within,
            check=False,
        )


def processes_with(*markers: str) -> Iterator[int]:
    """Return the processes of this machine that have these texts in their environment or command line."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                said = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if all(one.encode() in said for one in markers) and state != "Z":
                yield int(folder.name)


def answer(url: str, **request: Any) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, **request)) as told:  # noqa: S310 - a server of ours
        return json.load(told)


class Api:
    """A run's API server as any client reaches it."""

    def __init__(self, run: Run, cluster: str = "small") -> None:
        self._cluster = cluster
        self.kubeconfig = eventually(lambda: next(run.state.rglob("kubeconfig"), None), what="it has a kubeconfig")
        config = json.loads(self.kubeconfig.read_text())
        self.server = config["clusters"][0]["cluster"]["server"]
        self.address = self.server.rpartition("/")[0]

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in answer(self.server + "/api/v1/pods")["items"]]

    def patch(self, spec: dict) -> None:
        answer(
            f"{self.server}/apis/tfcluster.dev/v1alpha1/namespaces/default/tfclusters/{self._cluster}",
            data=json.dumps({"spec": spec}).encode(),
            method="PATCH",
            headers={"Content-Type": "application/merge-patch+json"},
        )
