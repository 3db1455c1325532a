"""A real Prometheus and its promtool, built from the module that upstream releases."""

import json
import re
import shutil
import stat
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.go_toolchain import run_go

from .objects import Object
from .waiting import GUARD, eventually

MODULE: Final = "github.com/prometheus/prometheus@v0.305.0"
"""Prometheus 3.5, the release with long-term support; its own go.sum pins everything that it is built from."""

_PLUGINS: Final = 'package plugins\n\nimport _ "github.com/prometheus/prometheus/discovery/kubernetes"\n'
"""The service discoveries that are built in besides upstream's minimum, files and HTTP.

promtool has that of Kubernetes anyway. The twenty others, each with a cloud's own library, would double the build.
"""


OPERATOR_MODULE: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""The Prometheus Operator, for the definitions of its kinds."""


def definitions() -> list[Object]:
    """Return the CRDs of the chart's optional kinds, from the release of the Prometheus Operator."""
    names = ("podmonitors", "prometheusrules", "servicemonitors")

    def copy(folder: Path) -> None:
        answer = json.loads(run_go(["mod", "download", "-json", OPERATOR_MODULE]))
        for name in names:
            file = Path(answer["Dir"], "example", "prometheus-operator-crd", f"monitoring.coreos.com_{name}.yaml")
            (folder / name).write_bytes(file.read_bytes())

    why = "what a PodMonitor and its like may hold"
    folder = cached("prometheus-operator", content_hash(OPERATOR_MODULE, *names), copy, usually="5 s", why=why)
    return [yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in names]


def programs() -> Path:
    """Return the folder with `prometheus` and `promtool`, built once for each version."""

    def build(folder: Path) -> None:
        answer = json.loads(run_go(["mod", "download", "-json", MODULE]))
        source = folder / "source"
        shutil.copytree(answer["Dir"], source)
        # Go's module cache is read-only, and so is a copy of it.
        for path in (source, source / "plugins", source / "plugins" / "plugins.go"):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        (source / "plugins" / "plugins.go").write_text(_PLUGINS, encoding="utf-8")
        for name in ("prometheus", "promtool"):
            run_go(
                ["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", folder / name, f"./cmd/{name}"],
                folder=source,
            )
        for path in [source, *source.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        shutil.rmtree(source)

    key = content_hash(MODULE, _PLUGINS)
    why = "the Prometheus that reads the operator's metrics, and the judge of its rules"
    return cached("prometheus", key, build, usually="3 min on two cores", why=why)


def promtool(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs() / "promtool", *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=GUARD
    )


class Prometheus:
    """A running Prometheus on loopback; also a context manager that ends it."""

    def __init__(self, folder: Path, configuration: str) -> None:
        (folder / "prometheus.yml").write_text(configuration, encoding="utf-8")
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    programs() / "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.address = self._listening()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Call its HTTP API; an error is a ValueError with its message."""
        question = f"{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{question}", timeout=GUARD) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        found = self.ask("query", query=expression)
        if found["resultType"] == "scalar":
            return [{"metric": {}, "value": found["result"]}]
        result: list[dict[str, Any]] = found["result"]
        return result

    def _listening(self) -> str:
        def address() -> str:
            text = self.log.read_text(encoding="utf-8")
            assert self._process.poll() is None, f"Prometheus has ended:\n{text[-3000:]}"
            ready = "Server is ready to receive web requests." in text
            found = re.search(r"msg=\"Listening on\" .*?address=([\d.:]+)", text)
            return found[1] if found and ready else ""

        # An AssertionError in the probe ends the wait; only one in ``accept`` means "not yet".
        return eventually(address, what="Prometheus is ready")


if __name__ == "__main__":
    # Build it before the tests, which have a time limit.
    programs()
