"""Which other objects the templates of a TFCluster name: without them no pod starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Reference(NamedTuple):
    """An object of the cluster's namespace that a template names, and the job whose template does."""

    kind: str
    name: str
    job: str


def references_of(job: str, template: Mapping[str, Any]) -> set[Reference]:
    """Give what a template cannot do without; what it calls optional is left out."""
    spec = template.get("spec") or {}
    found = {*_of_pod(spec), *_of_volumes(spec)}
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            found.update(_of_container(container))
    return {Reference(kind, name, job) for kind, name in found if name}


def _of_pod(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "")
    for secret in spec.get("imagePullSecrets") or ():
        yield "Secret", str(secret.get("name", ""))


def _of_volumes(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes") or ():
        claim, projected = volume.get("persistentVolumeClaim") or {}, volume.get("projected") or {}
        yield "PersistentVolumeClaim", str(claim.get("claimName", ""))
        for source in (volume, *(projected.get("sources") or ())):
            secret, config_map = source.get("secret") or {}, source.get("configMap") or {}
            if not secret.get("optional"):
                yield "Secret", str(secret.get("secretName") or secret.get("name") or "")
            if not config_map.get("optional"):
                yield "ConfigMap", str(config_map.get("name", ""))


def _of_container(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    sources = [one.get("valueFrom") or {} for one in container.get("env") or ()]
    named = {"Secret": ("secretKeyRef", "secretRef"), "ConfigMap": ("configMapKeyRef", "configMapRef")}
    for source in (*sources, *(container.get("envFrom") or ())):
        for kind, keys in named.items():
            for key in keys:
                reference = source.get(key) or {}
                if not reference.get("optional"):
                    yield kind, str(reference.get("name", ""))
