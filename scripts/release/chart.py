"""The chart as a package, and as one manifest for users without helm.

Both have the name of the image that is published with them. The chart in the checkout does not have a published image.
"""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from local_kubernetes import binaries
from scripts.images import ROOT
from scripts.install import NAMESPACE, RELEASE
from scripts.release.archives import files_below, write_tar

CHART: Final = ROOT / "charts" / "tfcluster-operator"
_HEADER: Final = """\
# TFCluster {version}: the kind TFCluster, and the operator for all namespaces.
#
#   kubectl apply --server-side -f install.yaml       installs or upgrades it
#   kubectl -n {namespace} wait --for=condition=Available deployment --all
#
#   kubectl delete -f install.yaml -l app.kubernetes.io/name=tfcluster-operator
#                                                     removes the operator; every TFCluster stays, and its pods run on
#
# NB: without -l, `kubectl delete` deletes the kind too, and with it EVERY TFCluster of the cluster and its pods.
"""


def package(folder: Path, *, image: str, version: str, epoch: int) -> Path:
    """Package the chart with helm, and repack it without helm's timestamps.

    Returns:
        The package.
    """
    with tempfile.TemporaryDirectory() as place:
        staged = Path(place) / CHART.name
        shutil.copytree(CHART, staged)
        values = staged / "values.yaml"
        values.write_text(with_image(values.read_text(encoding="utf-8"), image), encoding="utf-8")
        _helm("package", staged, "--version", version, "--app-version", version, "--destination", place)
        packed = next(Path(place).glob("*.tgz"))
        with tarfile.open(packed) as archive:
            archive.extractall(Path(place) / "files", filter="data")
        write_tar(folder / packed.name, files_below(Path(place) / "files"), epoch=epoch)
        return folder / packed.name


def with_image(values: str, image: str) -> str:
    """Set the image in the text of values, and leave the rest of the text unchanged.

    Returns:
        The text with the repository, split if the values have a key for the registry.

    Raises:
        KeyError: ``image.repository`` is missing in the values.
    """
    fields = _scalars(_scalars(yaml.compose(values))["image"])
    registry, _, rest = image.partition("/")
    wanted = {"registry": registry, "repository": rest} if "registry" in fields else {"repository": image}
    # From the end of the text, so that earlier positions stay valid.
    for node, value in sorted(
        ((fields[key], wanted[key]) for key in wanted), key=lambda pair: -pair[0].start_mark.index
    ):
        values = values[: node.start_mark.index] + value + values[node.end_mark.index :]
    return values


def install_manifest(package: Path, *, version: str) -> str:
    """Render the chart for ``kubectl apply``.

    Returns:
        The namespace, the CRD and the operator's objects, in the order of creation.
    """
    options = ["--namespace", NAMESPACE, "--skip-tests"]
    rendered = list(_without_helm(yaml.safe_load_all(_helm("template", RELEASE, package, *options))))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    definition = (ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8").removeprefix("---\n")
    objects = [found for found in rendered if found["kind"] != "CustomResourceDefinition"]
    parts = [yaml.safe_dump(found, sort_keys=False, width=120) for found in objects]
    return "---\n".join(
        [_HEADER.format(version=version, namespace=NAMESPACE), yaml.safe_dump(namespace), definition, *parts]
    )


def _without_helm(objects: Iterator[dict[str, Any] | None]) -> Iterator[dict[str, Any]]:
    """Leave out what only helm reads: hooks, its annotations, and the labels that name it as the owner."""
    for found in objects:
        if found is None or "helm.sh/hook" in found["metadata"].get("annotations", {}):
            continue
        for described in (found["metadata"], *_templates(found)):
            for field in ("labels", "annotations"):
                said = described.get(field) or {}
                for key in [key for key in said if key.startswith("helm.sh/") or said[key] == "Helm"]:
                    del said[key]
        yield found


def _templates(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    template = found.get("spec", {}).get("template", {})
    if "metadata" in template:
        yield template["metadata"]


def _scalars(node: Any) -> dict[str, Any]:
    return {key.value: value for key, value in node.value}


def _helm(*arguments: str | Path) -> str:
    done = subprocess.run([binaries.helm(), *arguments], check=True, capture_output=True, text=True, encoding="utf-8")
    return done.stdout
