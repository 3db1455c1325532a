"""`make install`: install the working tree as an image and a release in the cluster of `make cluster`."""

import subprocess
import sys
from typing import Final

from scripts import images

RELEASE: Final = "tfcluster"
NAMESPACE: Final = "tfcluster-system"
DEFINITION: Final = "tfclusters.tfcluster.dev"


def main() -> int:
    """Build, load, install or upgrade, and wait until the operator is ready."""
    image = images.load(images.OPERATOR)
    repository, _, tag = image.rpartition(":")
    kubeconfig = ["--kubeconfig", str(images.ROOT / ".local" / "kubeconfig")]
    _give_the_definition_to_the_release(kubeconfig)
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
        f"image.repository={repository},image.tag={tag}",
        # helm takes over the fields that kubectl has applied before.
        "--force-conflicts",
        "--wait",
        "--timeout",
        "3m",
    )
    images.tell("the operator is ready")
    return 0


def _give_the_definition_to_the_release(kubeconfig: list[str]) -> None:
    """Let the release upgrade a CRD of kubectl or an older chart; a CRD of another release is not changed."""
    of_interest = r"jsonpath={.kind} {.metadata.annotations.meta\.helm\.sh/release-name}"
    read = ["get", "crd", "--ignore-not-found", "--output", of_interest]
    if _run("kubectl", *kubeconfig, *read, DEFINITION).split() == ["CustomResourceDefinition"]:
        about = [*kubeconfig, "--overwrite", "crd", DEFINITION]
        _run("kubectl", "label", *about, "app.kubernetes.io/managed-by=Helm")
        owner = [f"meta.helm.sh/release-name={RELEASE}", f"meta.helm.sh/release-namespace={NAMESPACE}"]
        _run("kubectl", "annotate", *about, *owner)


def _run(program: str, *arguments: str) -> str:
    command = [str(images.ROOT / ".local" / "bin" / program), *arguments]
    return subprocess.run(command, check=True, cwd=images.ROOT, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
