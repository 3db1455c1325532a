"""Building our images: by Docker where it runs, by buildah otherwise, on a base made by debootstrap without a registry.

An archive is kept outside the checkout under the hash of everything it is made from; an unchanged image is not built
again.
"""

from __future__ import annotations

import configparser
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local_kubernetes import choice
from local_kubernetes.cache import cached, content_hash
from local_kubernetes.doctor import docker_answers
from scripts import buildah

ROOT: Final = Path(__file__).resolve().parent.parent

#: Variables by which pip is told of the machine it runs on; the build is told the same by a file.
_TRUST_STORE: Final = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True)
class Image:
    """One of our images: its name, its Dockerfile, and the files it is made from."""

    name: str
    dockerfile: Path
    inputs: tuple[str, ...]
    usually: str
    why: str
    tells_times: bool = True
    """Whether its files have the times at which they were made: Python compares them with those in its compiled files,
    unless it compiled by hash."""

    def content(self) -> str:
        """Name what the image is made from."""
        found = (path for pattern in self.inputs for path in ROOT.glob(pattern) if path.is_file())
        files = sorted(path for path in found if "__pycache__" not in path.parts)
        return content_hash(
            buildah.DEBIAN, buildah.PACKAGES, *(part for f in files for part in (str(f.relative_to(ROOT)), f))
        )

    def archive(self) -> Path:
        """Build the image, unless it is there, and give its archive."""
        folder = cached(
            Path(self.name).name,
            self.content(),
            lambda partial: _build(self, partial / "image.tar"),
            usually=self.usually,
            why=self.why,
        )
        return folder / "image.tar"


_SOURCES: Final = ("pyproject.toml", "README.md", "LICENSE", "resolver/**/*", "operator/**/*")

OPERATOR: Final = Image(
    name="localhost/tfcluster-operator",
    dockerfile=ROOT / "Dockerfile",
    inputs=("Dockerfile", "requirements/operator.txt", "requirements/build.txt", *_SOURCES),
    usually="half a minute",
    why="the operator that is installed",
    tells_times=False,
)
TRAINING: Final = Image(
    name="localhost/tfcluster-training",
    dockerfile=ROOT / "images" / "training.Dockerfile",
    # Neither the resolver nor the operator: what is edited most does not cost three minutes.
    inputs=("images/training.Dockerfile", "requirements/tensorflow.txt", "examples/*.py"),
    usually="three minutes",
    why="TensorFlow for the examples' pods",
)


def load(image: Image) -> str:
    """Build an image and make it known to the cluster of `make cluster`.

    Returns:
        The name by which the cluster's pods use it. It changes with the content, but where images are imported into
        the nodes, the large one is imported once, under the name that the examples have: nothing is upgraded to it.
    """
    archive = image.archive()
    tagged = f"{image.name}:{image.content()}"
    if choice.chosen().name == "current":
        name = _load(archive, tagged)  # pushed each time: layers that the registry has are not sent again
        _loaded(image).write_text(name)
        return name
    names = [example_name(image)] if image is TRAINING else [tagged, example_name(image)]
    # The cluster may have been made again since: its kubeconfig tells one from the other.
    mark = f"{names[0]} {tagged} {(ROOT / '.local' / 'kubeconfig').stat().st_mtime_ns}"
    if not (_loaded(image).is_file() and _loaded(image).read_text() == mark):
        tell(f"loading {tagged} into the cluster")
        for name in names:
            _load(archive, name)
        _loaded(image).write_text(mark)
    return names[0]


def example_name(image: Image) -> str:
    """Return the name that the examples and the README have for an image."""
    return f"{image.name}:dev"


def loaded_name(image: Image) -> str:
    """Return the name by which pods use an image that was loaded earlier; without that, the name of the examples."""
    return _loaded(image).read_text().split()[0] if _loaded(image).is_file() else example_name(image)


def with_loaded_names(manifest: str) -> str:
    """Return a manifest of the examples the names that our images have in this cluster."""
    for image in (OPERATOR, TRAINING):
        manifest = manifest.replace(example_name(image), loaded_name(image))
    return manifest


def _loaded(image: Image) -> Path:
    return ROOT / ".local" / f"loaded-{Path(image.name).name}"


def _load(archive: Path, name: str) -> str:
    command = [sys.executable, "-m", "local_kubernetes", "load-image", str(archive), name]
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()


def tell(line: str) -> None:
    """Print one line of progress."""
    print(f"tfcluster: {line}", file=sys.stderr, flush=True)


def _run(command: Sequence[str | Path], **more: object) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, **more)  # type: ignore[call-overload]  # passed on


def _build(image: Image, archive: Path) -> None:
    with lent_secrets() as secrets:
        if docker_answers():
            tag = f"{image.name}:dev"
            _run(["docker", "build", *secrets, "-t", tag, "-f", image.dockerfile, "."], env=_with_buildkit())
            _run(["docker", "save", "-o", archive, tag])
            return
        tag = f"{image.name}:{image.content()}"
        build_by_buildah(image, tag, secrets=secrets, arguments=["--format", "docker"])
        _run([*buildah.command(), "push", "--quiet", tag, f"docker-archive:{archive}:{tag}"])
        _run([*buildah.command(), "rmi", tag], stdout=subprocess.DEVNULL)


def build_by_buildah(
    image: Image, tag: str, *, secrets: Sequence[str], arguments: Sequence[str], architecture: str | None = None
) -> None:
    """Build an image into buildah's storage, on the base that needs no registry."""
    buildah.install()
    architecture = architecture or own_architecture()
    base = buildah.debian_base(architecture)
    how = ["--layers", "--isolation", "chroot", "--arch", architecture, "--build-arg", f"BASE_IMAGE={base}", *arguments]
    if not image.tells_times:
        # A layer that the cache has keeps its times, so all have the same: that of 1970, as ko and Bazel set it.
        how += ["--timestamp", "0"]
    _run([*buildah.command(), "bud", "--quiet", *how, *secrets, "-t", tag, "-f", image.dockerfile, "."])


def own_architecture() -> str:
    """Name this machine's architecture as Debian and OCI do."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@contextmanager
def lent_secrets() -> Iterator[list[str]]:
    """Lend the build what pip needs on this machine: a trust store and pip's configuration, as secrets."""
    with tempfile.TemporaryDirectory() as folder:
        secrets = []
        configuration = Path(folder) / "pip.conf"
        configuration.write_text(_pip_configuration())
        secrets += ["--secret", f"id=pip.conf,src={configuration}"]
        if _TRUST_STORE.is_file():
            secrets += ["--secret", f"id=ca.crt,src={_TRUST_STORE}"]
        yield secrets


def _pip_configuration() -> str:
    said = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    settings = {}
    for line in said.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in ("global", "install", ":env:") and name not in ("find-links", "cache-dir"):
            settings[name] = value.strip("'\"")
    if _TRUST_STORE.is_file():
        settings["cert"] = str(_TRUST_STORE)
    parser = configparser.RawConfigParser()
    parser["global"] = settings
    with tempfile.TemporaryFile("w+") as file:
        parser.write(file)
        file.seek(0)
        return file.read()


def _with_buildkit() -> dict[str, str]:
    return {**os.environ, "DOCKER_BUILDKIT": "1"}
