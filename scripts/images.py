"""Building our images with Docker or buildah, on a base that debootstrap builds without a registry.

An archive is kept outside the checkout under the hash of all its inputs; an unchanged image is not built again.
"""

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

#: This machine's certificate authorities, for pip; the build gets them as a secret.
_TRUST_STORE: Final = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True)
class Image:
    """One of our images: its name, its Dockerfile, and its input files."""

    name: str
    dockerfile: Path
    inputs: tuple[str, ...]
    usually: str
    why: str
    tells_times: bool = True
    """Whether its files have the times at which they were made: Python compares them with those in its compiled files,
    unless it compiled by hash."""

    def content(self) -> str:
        """Return the hash of the image's inputs."""
        found = (path for pattern in self.inputs for path in ROOT.glob(pattern) if path.is_file())
        files = sorted(path for path in found if "__pycache__" not in path.parts)
        return content_hash(
            buildah.DEBIAN, buildah.PACKAGES, *(part for f in files for part in (str(f.relative_to(ROOT)), f))
        )

    def archive(self) -> Path:
        """Build the image, if it does not exist, and return its archive."""
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
    # Without the resolver and the operator: these are edited most, and a rebuild takes three minutes.
    inputs=("images/training.Dockerfile", "requirements/tensorflow.txt", "examples/*.py"),
    usually="three minutes",
    why="TensorFlow for the examples' pods",
)


def load(image: Image) -> str:
    """Build an image and load it into the cluster of `make cluster`.

    Returns:
        The image name for the cluster's pods. It changes with the content, but if images are imported into the nodes,
        the large one is imported once, under the name in the examples, and is not upgraded to a new one.
    """
    archive = image.archive()
    tagged = f"{image.name}:{image.content()}"
    if choice.chosen().name == "current":
        name = _load(archive, tagged)  # pushed each time: layers that the registry has are not sent again
        _loaded(image).write_text(name)
        return name
    names = [example_name(image)] if image is TRAINING else [tagged, example_name(image)]
    # The cluster might have been created again since: the time of its kubeconfig shows this.
    mark = f"{names[0]} {tagged} {(ROOT / '.local' / 'kubeconfig').stat().st_mtime_ns}"
    if not (_loaded(image).is_file() and _loaded(image).read_text() == mark):
        tell(f"loading {tagged} into the cluster")
        for name in names:
            _load(archive, name)
        _loaded(image).write_text(mark)
    return names[0]


def example_name(image: Image) -> str:
    """Return an image's name in the examples and the README."""
    return f"{image.name}:dev"


def loaded_name(image: Image) -> str:
    """Return the name of an image that was loaded earlier, for pods; without that, the name in the examples."""
    return _loaded(image).read_text().split()[0] if _loaded(image).is_file() else example_name(image)


def with_loaded_names(manifest: str) -> str:
    """Return a manifest of the examples with the names of our images in this cluster."""
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
    """Build an image into buildah's storage, on the base that does not need a registry."""
    buildah.install()
    architecture = architecture or own_architecture()
    base = buildah.debian_base(architecture)
    how = ["--layers", "--isolation", "chroot", "--arch", architecture, "--build-arg", f"BASE_IMAGE={base}", *arguments]
    if not image.tells_times:
        # A cached layer keeps its timestamps, so all get the same one: that of 1970, like ko and Bazel.
        how += ["--timestamp", "0"]
    _run([*buildah.command(), "bud", "--quiet", *how, *secrets, "-t", tag, "-f", image.dockerfile, "."])


def own_architecture() -> str:
    """Return this machine's architecture in the format of Debian and OCI."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@contextmanager
def lent_secrets() -> Iterator[list[str]]:
    """Yield pip's settings for this machine as secrets for the build: a trust store and pip's configuration."""
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
