"""Applying the objects of files, TFClusters and whatever they need beside them; and changes of a TFCluster."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster.changes import Change
from tfcluster.errors import ConflictError, ManifestError, NotFoundError, RefusedError
from tfcluster.kube.api import TFCLUSTERS, KubernetesApi, Object, Resource
from tfcluster.manifest.files import Manifest, Manifests
from tfcluster.manifest.python import TFCluster
from tfcluster.manifest.python import check as check_type

#: Kinds that other objects depend on are applied first, in this order; all other kinds follow.
_FIRST: Final = ("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "Role", "RoleBinding")


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of applying one object."""

    body: Object
    outcome: str
    resource: Resource

    def __str__(self) -> str:
        """Format the outcome as kubectl does: ``tfcluster/digits created``."""
        return f"{self.body['kind'].lower()}/{self.body['metadata']['name']} {self.outcome}"


@dataclass(slots=True)
class Applying:
    """Applies objects, server-side."""

    api: KubernetesApi
    force: bool = False
    dry_run: bool = False
    _known: dict[str, Sequence[Object]] = field(default_factory=dict)

    def apply(self, manifests: Manifests) -> Iterator[Applied]:
        """Apply objects in the order of their dependencies, the TFClusters last."""
        for manifest in (*manifests.others, *manifests.clusters):
            check(manifest)
        for manifest in manifests.clusters:
            # The same files might create its namespace or the CRD.
            with contextlib.suppress(NotFoundError):
                self._apply(manifest, dry_run=True)
        # The sort is stable: kinds that are not named follow in the order of the files.
        first = sorted(manifests.others, key=lambda one: (*_FIRST, one.kind).index(one.kind))
        for manifest in (*first, *manifests.clusters):
            yield self._apply(manifest, dry_run=self.dry_run)

    def apply_one(self, manifest: Manifest) -> Applied:
        check(manifest)
        return self._apply(manifest, dry_run=self.dry_run)

    def _apply(self, manifest: Manifest, *, dry_run: bool) -> Applied:
        resource = TFCLUSTERS if manifest.body["apiVersion"] == TFCLUSTERS.group_version else self._resource(manifest)
        try:
            before = self.api.find(resource, manifest.name, manifest.namespace)
            options = {"force": self.force, "dry_run": dry_run}
            body, created = self.api.apply(resource, manifest.body, manifest.namespace, **options)
        except RefusedError as error:
            words = f"{manifest.place()}: {manifest.kind} {manifest.name}: {error}"
            raise type(error)(words, status=error.status, reason=error.reason, hint=error.hint) from error
        if created:
            return Applied(body, "created", resource)
        return Applied(body, "unchanged" if before is not None and _same(before, body) else "configured", resource)

    def _resource(self, manifest: Manifest) -> Resource:
        """Ask the API server how to reach objects of a kind; raises ManifestError for an unknown kind."""
        version = str(manifest.body["apiVersion"])
        with contextlib.suppress(NotFoundError):
            if version not in self._known:
                self._known[version] = self.api.resources_of(version)
            for one in self._known[version]:
                if one["kind"] == manifest.kind and "/" not in one["name"]:
                    return Resource(version, one["name"], one["namespaced"])
        what = f"the API server does not have the kind {manifest.kind} of {version}"
        hint = "Is it spelt well? If it is of an add-on, install that first."
        raise ManifestError(f"{manifest.place()}: {what}", hint=hint)


def manifest_of(cluster: TFCluster | Mapping[str, Any]) -> Object:
    """Return the manifest of a TFCluster, or a copy of a manifest; raises ManifestError if it is not valid JSON."""
    if isinstance(cluster, TFCluster):
        return cluster.to_manifest()
    try:
        body = json.loads(json.dumps(cluster))
    except (TypeError, ValueError) as error:
        raise ManifestError(f"this is not a manifest: {error}") from error
    found: Object = check_type(body, Object, "this is not a manifest")
    return found


def check(manifest: Manifest) -> None:
    """Check that a manifest identifies an object; raises ManifestError if apiVersion, kind or name is missing."""
    missing = [key for key in ("apiVersion", "kind") if not isinstance(manifest.body.get(key), str)]
    missing += [] if manifest.name else ["metadata.name"]
    words, about = f"give it {', '.join(missing)}" if missing else "", manifest.body.get("metadata")
    if isinstance(about, Mapping) and about.get("generateName") and not about.get("name"):
        words = "it has generateName: create it with kubectl create, or give it a name"
    if words:
        raise ManifestError("the object cannot be applied:", [f"{manifest.place()}: {words}"])


def _same(before: Object, after: Object) -> bool:
    """Return whether an apply changed nothing; a changed status is ignored, because other clients write it."""

    def told(body: Object) -> Object:
        about = {**body["metadata"], "managedFields": None, "resourceVersion": None}
        return {**body, "status": None, "metadata": about}

    return told(before) == told(after)


def recreated_error(name: str) -> ConflictError:
    words = f"{name} was deleted and created again"
    return ConflictError(words, status=409, reason="Conflict", hint="Look at the new one, and ask again.")


def change_cluster(
    api: KubernetesApi, body: Object, change: Change, *, dry_run: bool, tell: Callable[[str], None]
) -> Object:
    """Carry out a change of a TFCluster; raises ConflictError if another one has its name now."""
    for words in change.words:
        tell(words)
    about = body["metadata"]
    try:
        for one in filter(None, (change.first, change.patch)):
            # With its UID, so that another TFCluster that was created under the same name is not changed.
            patch = {**one, "metadata": {"uid": about["uid"]}}
            body = api.patch(TFCLUSTERS, about["name"], patch, about["namespace"], dry_run=dry_run)
    except RefusedError as error:
        if error.status == 422 and "metadata.uid" in str(error):
            raise recreated_error(about["name"]) from error
        raise
    return body
