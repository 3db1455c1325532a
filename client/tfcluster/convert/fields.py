"""The map of TFJob's fields: what each becomes, and which verdicts a conversion may give it.

The documentation's table is made of it (``scripts/field_map.py``), and a test holds every verdict against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tfcluster.convert.verdicts import Outcome, Path, Verdict

_ANY: Final = ("R", "K")


@dataclass(frozen=True, slots=True)
class Field:
    """One field, or one with all that is in it.

    In ``path`` R stands for a type of replicas, K for a key of the user's and ``[]`` for an index.  ``becomes`` is the
    field of a TFCluster, "" for none; ``outcomes`` are the verdicts that it may get.
    """

    path: str
    becomes: str
    outcomes: tuple[Outcome, ...]
    words: str

    def covers(self, path: Path) -> bool:
        """Tell whether a node is this field or in it."""
        parts = self.parts()
        return len(parts) <= len(path) and all(
            part in _ANY or (part == "[]" and isinstance(own, int)) or part == own
            for part, own in zip(parts, path, strict=False)
        )

    def parts(self) -> tuple[str, ...]:
        """Give the keys of the path, an index as ``[]``."""
        return tuple(self.path.replace("[]", ".[]").split(".")) if self.path else ()


def field_of(verdict: Verdict) -> Field | None:
    """Give the narrowest field of the map that a verdict is about."""
    found = [one for one in FIELDS if one.path and one.covers(verdict.path)]
    if not verdict.path:
        found = [one for one in FIELDS if not one.path and verdict.target.startswith(one.becomes)]
    return max(found, key=lambda one: len(one.parts()), default=None)


_SAME, _EXPLICIT, _NOTED = Outcome.SAME, Outcome.EXPLICIT, Outcome.NOTED
_LOSSY, _REFUSED, _LEFT_OUT = Outcome.LOSSY, Outcome.REFUSED, Outcome.LEFT_OUT
_R: Final = "spec.tfReplicaSpecs.R"
_J: Final = "spec.jobs.J"
_OLD: Final = "As in `runPolicy`: manifests of before it have the field here. Where both are set, `runPolicy` decides."
_GANG: Final = (
    "`spec.scheduling.gang` is for the scheduler that the operator is set up for; for another one create its PodGroup, "
    "and name that in the templates."
)
_SUCCESS: Final = (
    "The Chief or Master decides; without one all workers. TFJob takes worker 0 alone, unless it says AllWorkers: with "
    "several workers that is a loss."
)


def _fields() -> Iterator[Field]:
    yield Field("apiVersion", "apiVersion", (_SAME, _REFUSED), "`v1`, `v1beta2`, `v1beta1`, `v1alpha2`; no other.")
    yield Field("kind", "kind", (_SAME,), "")
    yield Field("metadata", "metadata", (_LOSSY, _REFUSED), "It needs a name. Keys that Kubernetes has not are lost.")
    words = "A name that no pod or Service can have is refused; TFJob takes it and hangs."
    yield Field("metadata.name", "metadata.name", (_SAME, _REFUSED), words)
    yield Field("metadata.generateName", "metadata.generateName", (_SAME, _REFUSED), "As the name.")
    yield Field("metadata.namespace", "metadata.namespace", (_SAME,), "")
    words = "Those of Kueue (`kueue.x-k8s.io/…`) are kept: a TFCluster waits in a queue, too."
    yield Field("metadata.labels", "metadata.labels", (_SAME, _NOTED, _REFUSED), words)
    words = "All but what `kubectl apply` keeps there of the TFJob."
    yield Field("metadata.annotations", "metadata.annotations", (_SAME, _LEFT_OUT, _REFUSED), words)
    for name in ("finalizers", "ownerReferences"):
        yield Field(
            f"metadata.{name}", "", (_LOSSY,), "Whoever wrote it knows the TFJob: add it again where it is meant."
        )
    for name in SERVERS:
        yield Field(f"metadata.{name}", "", (_LEFT_OUT,), "The API server sets it.")
    yield Field("status", "", (_LEFT_OUT,), "It says what has happened to the TFJob.")
    yield from _spec()
    yield from _replicas()
    yield from _template()
    yield from _unwritten()


def _spec() -> Iterator[Field]:
    yield Field("spec", "spec", (_LOSSY,), "A key that neither kind has is named, and left out.")
    yield Field("spec.successPolicy", "spec.successPolicy", (_SAME, _EXPLICIT, _NOTED, _LOSSY, _REFUSED), _SUCCESS)
    words = (
        "A worker sees itself and the ps, a ps itself: `deviceFilters` and `taskDeviceFilters` say so. Other roles, "
        "which TFJob gives an empty cluster, see every task. Failed workers are restarted; TFJob goes on without them."
    )
    yield Field("spec.enableDynamicWorker", "spec.jobs.J.deviceFilters", (_SAME, _NOTED, _LOSSY, _REFUSED), words)
    yield Field("spec.runPolicy", "spec", (_LOSSY, _REFUSED), "Its fields stand in `spec` itself.")
    yield Field("spec.runPolicy.suspend", "spec.suspend", (_SAME, _REFUSED), "")
    words = "TFJob's own operator becomes none, which is ours. MultiKueue is kept; tell it of TFClusters."
    yield Field("spec.runPolicy.managedBy", "spec.managedBy", (_LEFT_OUT, _LOSSY, _REFUSED), words)
    of_numbers = {
        "backoffLimit": (_NOTED, "So many restarts are allowed, under each `restartPolicy`; TFJob ends at the last."),
        "activeDeadlineSeconds": (_NOTED, "A timer enforces it; with TFJob it is the next event."),
        "ttlSecondsAfterFinished": (_SAME, ""),
    }
    words = "TFJob's default is written out: `None` in `v1`, `Running` before."
    for place in ("spec.runPolicy", "spec"):
        old = place == "spec"
        for name, (outcome, told) in of_numbers.items():
            yield Field(
                f"{place}.{name}", f"spec.{name}", (outcome, _REFUSED, *((_LEFT_OUT,) * old)), _OLD if old else told
            )
        outcomes = (_SAME, _EXPLICIT, _REFUSED, *((_LEFT_OUT, _NOTED) * old))
        yield Field(f"{place}.cleanPodPolicy", "spec.cleanPodPolicy", outcomes, _OLD if old else words)
    yield Field("spec.runPolicy.schedulingPolicy", "", (_LOSSY, _REFUSED), _GANG)
    for name in ("minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds"):
        yield Field(f"spec.runPolicy.schedulingPolicy.{name}", "", (_LOSSY,), _GANG)


def _replicas() -> Iterator[Field]:
    words = "There must be one. With more than 1,000 tasks the operator sets no TF_CONFIG."
    yield Field("spec.tfReplicaSpecs", "spec.jobs", (_REFUSED, _LOSSY), words)
    words = (
        "The type in lower case: `chief`, `master`, `worker`, `ps`, `evaluator`. Only an evaluator's own TF_CONFIG has "
        "it in the cluster; `resolver.tfConfig: TFJob` puts it into all. One type twice, in two spellings, is refused, "
        "as are Chief and Master together. Of a type that TFJob does not know a failure counts here."
    )
    yield Field(_R, _J, (_NOTED, _LOSSY, _REFUSED), words)
    yield Field(f"{_R}.replicas", f"{_J}.replicas", (_SAME, _REFUSED), "From 0 to 10,000. The default is 1 in both.")
    words = (
        "TFJob's default, Never, is written out. It means the same, but for workers that may come and go "
        "(`enableDynamicWorker`)."
    )
    yield Field(f"{_R}.restartPolicy", f"{_J}.restartPolicy", (_SAME, _EXPLICIT, _LOSSY, _REFUSED), words)


def _template() -> Iterator[Field]:
    template, spec = f"{_R}.template", f"{_R}.template.spec"
    becomes = f"{_J}.template"
    words = "Carried whole, but for what follows. The port named tfjob-port becomes `spec.port` or `spec.jobs.J.port`."
    yield Field(template, becomes, (_SAME, _LOSSY, _REFUSED), words)
    words = "Labels and annotations are kept; of other keys nobody knows."
    yield Field(f"{template}.metadata", f"{becomes}.metadata", (_LOSSY, _REFUSED), words)
    for name in ("name", "namespace", "creationTimestamp", "generateName"):
        yield Field(f"{template}.metadata.{name}", "", (_LEFT_OUT,), "TFJob does not look at it either.")
    yield Field(f"{template}.metadata.finalizers", "", (_LOSSY,), "Add them to the pods by other means.")
    for name in ("labels", "annotations"):
        words = "Those that the operator sets (`tfcluster.dev/…`, `app.kubernetes.io/name` and so on) are left out."
        yield Field(f"{template}.metadata.{name}.K", f"{becomes}.metadata.{name}.K", (_LOSSY,), words)
    words = "TFJob overwrites it with that of the replicas, and so it is left out."
    yield Field(f"{spec}.restartPolicy", "", (_LEFT_OUT, _NOTED), words)
    for name in ("hostname", "subdomain"):
        yield Field(f"{spec}.{name}", "", (_LOSSY,), "The operator sets it for the DNS name of each task.")
    yield Field(f"{spec}.hostNetwork", "", (_REFUSED,), "`true` is refused: tasks have addresses of their own.")
    words = (
        "If the template does not name a ServiceAccount, its pods are created without a token, unlike TFJob's: write "
        "`true` if the program calls the API server."
    )
    yield Field(
        f"{spec}.automountServiceAccountToken", f"{becomes}.spec.automountServiceAccountToken", (_NOTED,), words
    )
    words = (
        "Kept, but for Volcano, kube-batch and scheduler-plugins the operator does not create a PodGroup, as TFJob's "
        "does: use `spec.scheduling.gang`."
    )
    yield Field(f"{spec}.schedulerName", f"{becomes}.spec.schedulerName", (_LOSSY,), words)
    yield Field(f"{spec}.ephemeralContainers", "", (_LOSSY,), "They are for running pods: use `kubectl debug`.")
    words = "Empty after a restart under OnFailure or Always: the task gets a new pod. Keep files on a volume claim."
    for name in ("emptyDir", "ephemeral"):
        yield Field(f"{spec}.volumes[].{name}", f"{becomes}.spec.volumes[].{name}", (_LOSSY,), words)
    words = "Under OnFailure or Always a restart can move the task to another node."
    yield Field(f"{spec}.volumes[].hostPath", f"{becomes}.spec.volumes[].hostPath", (_NOTED,), words)
    words = "`tfcluster-view` and `tfcluster-resolver` are the operator's."
    yield Field(f"{spec}.volumes[].name", f"{becomes}.spec.volumes[].name", (_REFUSED,), words)
    words = "There must be one. Without one named tensorflow the first counts."
    yield Field(f"{spec}.containers", f"{becomes}.spec.containers", (_NOTED, _REFUSED), words)
    for group in ("containers", "initContainers"):
        container = f"{spec}.{group}[]"
        for name in ("name", "image"):
            yield Field(f"{container}.{name}", f"{becomes}.spec.{group}[].{name}", (_REFUSED,), "There must be one.")
        words = "A decimal number is written as a string. A fraction of a device is refused."
        yield Field(f"{container}.resources", f"{becomes}.spec.{group}[].resources", (_REFUSED,), words)
        words = "`/etc/tfcluster` and `/opt/tfcluster-resolver` are the operator's."
        yield Field(f"{container}.volumeMounts[].mountPath", "", (_REFUSED,), words)
        words = "`TFCLUSTER_JOB`, `TFCLUSTER_TASK_INDEX` and `TFCLUSTER_ADDRESS` are the operator's."
        yield Field(f"{container}.env[].name", "", (_REFUSED,), words)
    words = (
        "A TF_CONFIG of your own is left out where TFJob's would hide it. A value with the name of a replica's Service "
        "is kept and named."
    )
    yield Field(f"{spec}.containers[].env[]", f"{becomes}.spec.containers[].env[]", (_LEFT_OUT, _LOSSY), words)
    words = (
        "TFJob's labels in selectors and texts, and the names of replicas' Services, are kept and reported: a "
        "TFCluster has neither."
    )
    yield Field(spec, f"{becomes}.spec", (_LOSSY,), words)


def _unwritten() -> Iterator[Field]:
    words = "`OnDelete` is written out: an edit of a TFJob's template changes no running pod."
    yield Field("", "spec.updateStrategy.type", (_EXPLICIT,), words)
    words = "`Environment`, so that programs find TF_CONFIG. A single replica gets none, as with TFJob."
    yield Field("", "spec.resolver.tfConfig", (_EXPLICIT,), words)
    words = "`None` where no TF_CONFIG is set, so that the image's own program and PYTHONPATH stay."
    yield Field("", "spec.resolver.delivery", (_EXPLICIT,), words)
    words = "Left out: by default only the tasks reach their ports. Let others in by `allowFrom`, or `mode: None`."
    yield Field("", "spec.isolation", (_NOTED,), words)


#: What of an object's metadata is the API server's.
SERVERS: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
FIELDS: Final = tuple(_fields())
