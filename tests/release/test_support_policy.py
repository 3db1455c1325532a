"""The table of supported versions equals the versions that the tests run with."""

import re
import tomllib

import pytest
import yaml
from release_world import ROOT

from local_kubernetes import binaries


def documented() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "reference" / "versions.md").read_text().partition("\n## ")[0]
    heading, *rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| [^|]+ \|$", text, re.MULTILINE)
    assert heading == ("what", "versions")
    return {what: set(re.findall(r"\d+(?:\.\d+)+", versions)) for what, versions in rows}


def pinned(file: str, package: str) -> str:
    text = (ROOT / "requirements" / file).read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)", text, re.MULTILINE)
    assert found, f"{file} does not pin {package}"
    return found[1]


def older_servers() -> set[str]:
    modules = (ROOT / "local_kubernetes" / "older").glob("1.*.mod")
    return {re.search(r"k8s\.io/kubernetes v([\d.]+)", module.read_text())[1] for module in modules}


def kind_nodes() -> set[str]:
    rows = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["kubernetes"]["strategy"]
    return {re.search(r":v([\d.]+)@", row["node"])[1] for row in rows["matrix"]["include"]}


def oldest_python() -> set[str]:
    """Return the oldest Python that the distribution accepts; the Makefile prefers it."""
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert f"command -v python{oldest}" in (ROOT / "Makefile").read_text()
    return {oldest}


def older_tensorflows() -> list[str]:
    return re.search(r"^OLDER_TENSORFLOWS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


RUN = {
    "Kubernetes, API server and node": lambda: {binaries.kubernetes_version().removeprefix("v")},
    "Kubernetes, on kind": kind_nodes,
    "Python": oldest_python,
    "TensorFlow": lambda: {pinned("tensorflow-test.txt", "tensorflow-cpu"), pinned("tensorflow.txt", "tensorflow-cpu")},
    "TensorFlow, older": lambda: {pinned(f"tensorflow-{minor}.txt", "tensorflow-cpu") for minor in older_tensorflows()},
    "protobuf": lambda: {pinned(f"protobuf-{major}.txt", "protobuf") for major in (5, 6, 7)},
    "kubernetes (Python client)": lambda: {pinned("dev.txt", "kubernetes")},
    "helm": lambda: {binaries.HELM.rpartition("@v")[2]},
    "Kueue": lambda: {binaries.KUEUE.rpartition("@v")[2]},
}
if older_servers():
    RUN["Kubernetes, API server"] = older_servers


@pytest.mark.parametrize("what", RUN)
def test_row_is_what_the_tests_run(what):
    assert documented()[what] == RUN[what]()


def test_every_row_is_compared():
    assert set(documented()) == set(RUN)
