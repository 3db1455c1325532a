"""A container registry for tests: github.com/distribution/distribution, with images in a folder.

registry/main.go is the program of that project, at the version in its go.mod.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.go_toolchain import run_go
from local_kubernetes.oci_image import write_image

from .waiting import eventually

SOURCE = Path(__file__).parent / "registry"
IMAGE = "localhost/registry:3"


def program() -> Path:
    """Return the program, built once for each content of its sources."""
    return _built() / "registry"


def archive() -> Path:
    return _built() / "image.tar"


@contextmanager
def serving(folder: Path, port: int, *, enter: Sequence[str] = ()) -> Iterator[str]:
    """Serve the images of a folder on loopback for a ``with`` block; yield the address."""
    address = f"127.0.0.1:{port}"
    configuration = folder / f"{'inside' if enter else 'outside'}.json"
    storage = {"filesystem": {"rootdirectory": str(folder / "images")}}
    configuration.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": address}}))
    command = [*enter, str(program()), "serve", str(configuration)]
    ask = [*enter, sys.executable, "-c", f"import urllib.request as u; u.urlopen('http://{address}/v2/')"]
    with (folder / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(
                lambda: subprocess.run(ask, check=False, capture_output=True).returncode,
                lambda status: status == 0,
                what=f"the registry at {address} answers",
            )
            yield address
        finally:
            process.kill()


def _built() -> Path:
    def build(folder: Path) -> None:
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        run_go(["build", *flags, "-o", folder / "registry", "."], folder=SOURCE)
        write_image(folder / "image.tar", IMAGE, files={"bin/registry": folder / "registry"}, entrypoint=["registry"])

    key = content_hash(SOURCE / "main.go", SOURCE / "go.mod", SOURCE / "go.sum", IMAGE)
    return cached("registry", key, build, usually="1 min", why="the registry that images are pushed to in tests")
