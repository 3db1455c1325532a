"""`make install`: the working tree as an image and a release in the cluster of `make cluster`."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from scripts import images

RELEASE: Final = "tfcluster"
NAMESPACE: Final = "tfcluster-system"


def main() -> int:
    """Build, load, install or upgrade, and wait for the operator to be ready."""
    image = images.load(images.OPERATOR)
    repository, _, tag = image.rpartition(":")
    kubeconfig = ["--kubeconfig", str(images.ROOT / ".local" / "kubeconfig")]
    # NB: helm installs a chart's CRDs and never upgrades them.
    _run("kubectl", *kubeconfig, "apply", "-f", "crds/tfcluster.yaml")
    images.tell(f"installing the chart as release {RELEASE} in namespace {NAMESPACE}")
    _run(
        "helm",
        *kubeconfig,
        "upgrade",
        "--install",
        RELEASE,
        "charts/tfcluster-operator",
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--set",
        f"clusterWide=true,image.repository={repository},image.tag={tag}",
        "--wait",
        "--timeout",
        "3m",
    )
    images.tell("the operator is ready")
    return 0


def _run(program: str, *arguments: str) -> None:
    subprocess.run(
        [str(images.ROOT / ".local" / "bin" / program), *arguments],
        check=True,
        cwd=images.ROOT,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    sys.exit(main())
