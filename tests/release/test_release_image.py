"""The image of a release: the same bytes from two clones, and the same in a registry as in the archive.

It builds the image, which needs root and takes minutes: `make test-release`.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from release_world import ROOT
from support.waiting import eventually

from local_kubernetes import binaries
from local_kubernetes.cache import cache_root
from scripts import buildah

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif("TFCLUSTER_TEST_RELEASE" not in os.environ, reason="builds the image: `make test-release`"),
    pytest.mark.timeout(3000),
]

ARCHITECTURES = os.environ.get("ARCHITECTURES", "amd64").split()


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    return subprocess.run(
        command, cwd=cwd, env=inherited | environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.fixture(scope="module")
def clones(tmp_path_factory) -> list[Path]:
    """Two clones of the last commit, in folders of different names, and their releases."""
    folders = [tmp_path_factory.mktemp(name) / name for name in ("one", "another-place")]
    # The second finds no image and no layer of the first, not even the base, as on another machine.
    caches = [cache_root(), tmp_path_factory.mktemp("cache")]
    for entry in cache_root().iterdir():
        if not entry.name.startswith(("buildah", "debian-base")):
            (caches[1] / entry.name).symlink_to(entry)
    for folder in folders:
        run("git", "clone", "--quiet", ROOT, folder)
    for folder, cache in zip(folders, caches, strict=True):
        command = [sys.executable, "-m", "scripts.release", "build", "--architectures", *ARCHITECTURES]
        run(*command, cwd=folder, TFCLUSTER_CACHE=str(cache))
    return folders


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    buildah.install("docker-registry", "skopeo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder = tmp_path_factory.mktemp("registry")
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": address},
        "log": {"level": "error"},
    }
    (folder / "config.yml").write_text(json.dumps(settings))
    process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0

    eventually(listens, what="the registry listens")
    yield address
    process.terminate()
    process.wait()


def test_two_clones_make_the_same_release(clones):
    first, second = (sorted((clone / "dist").iterdir()) for clone in clones)

    assert [path.name for path in first] == [path.name for path in second]
    assert any(path.name.endswith(".oci.tar") for path in first)
    assert [one.name for one, other in zip(first, second, strict=True) if one.read_bytes() != other.read_bytes()] == []


def test_registry_has_what_the_archive_has(clones, registry, version, tmp_path):
    """The published image has the archive's digest; it and the chart can be pulled with the output of `publish`."""
    dist = shutil.copytree(clones[0] / "dist", tmp_path / "dist")
    where = ["--folder", dist, "--image", f"{registry}/team/op", "--charts", f"oci://{registry}/team/charts"]
    run(sys.executable, "-m", "scripts.release", "publish", "--plain-http", *where)

    said = dict(line.split("=", 1) for line in (dist / "published").read_text().splitlines())
    for architecture in ARCHITECTURES:
        inspect = ["skopeo", "inspect", "--tls-verify=false", "--override-arch", architecture, "--config"]
        found = json.loads(run(*inspect, f"docker://{said['image']}"))
        assert (found["architecture"], found["config"]["User"]) == (architecture, "65532:65532")
        assert found["config"]["Labels"]["org.opencontainers.image.version"] == version
    assert said["image"] == f"{said['image-name']}@{said['image-digest']}"
    pull = [binaries.helm(), "pull", f"oci://{said['chart-name']}", "--version", version, "--plain-http"]
    run(*pull, "--destination", tmp_path)
    package = f"tfcluster-operator-{version}.tgz"
    assert (tmp_path / package).read_bytes() == (dist / package).read_bytes()


def test_image_runs(clones, version):
    (archive,) = (clones[0] / "dist").glob("*.oci.tar")
    machines = {"amd64": "x86_64", "arm64": "aarch64"}
    for architecture in ARCHITECTURES:
        container = run(*buildah.command(), "from", "--quiet", "--arch", architecture, f"oci-archive:{archive}").strip()
        inside = [*buildah.command(), "run", "--isolation", "chroot", container, "--", "python3"]
        assert run(*inside, "-c", "import os; print(os.uname().machine)").strip() == machines[architecture]
        assert run(*inside, "-m", "tfcluster_operator", "--version") == f"tfcluster-operator {version}\n"
        run(*buildah.command(), "rm", container)
