"""Whose PodGroups place gangs: Kubernetes' own, those of scheduler-plugins, or Volcano's.

All three promise the same.  They differ in the API of their PodGroups, in how a pod says to which it belongs, and in
what a PodGroup tells of its places.  The operator is set up with one of them, so that manifests stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

#: Whose PodGroups there are.
GangSchedulerKind = Literal["Kubernetes", "SchedulerPlugins", "Volcano"]

#: The label by which a pod names its PodGroup of scheduler-plugins.
PLUGINS_LABEL: Final = "scheduling.x-k8s.io/pod-group"
#: The annotations by which a pod names its PodGroup of Volcano, which reads the first, and its older versions alone.
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


@dataclass(frozen=True, slots=True)
class Membership:
    """What a pod has because of its PodGroup: labels, annotations, and fields of its spec."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """One of them.

    ``api`` is the group and version of its PodGroups.  ``name`` is the schedulerName of the pods of a TFCluster with a
    gang whose template names none, "" to leave that to Kubernetes.  ``remedy`` says how an administrator gets the API.
    ``remembers`` says that a PodGroup tells for ever that it had its places: where it does not, we write it down.
    ``has_priority`` says that a PodGroup has a priority of its own.
    """

    kind: GangSchedulerKind
    api: str
    name: str
    remedy: str
    remembers: bool
    has_priority: bool

    @property
    def default_name(self) -> str:
        """The scheduler of a pod whose template names none."""
        return self.name or DEFAULT_SCHEDULER

    def counting(self, count: int) -> dict[str, Any]:
        """Give the part of a PodGroup's spec that says how many pods get their places at once."""
        if self.kind == "Kubernetes":
            return {"schedulingPolicy": {"gang": {"minCount": count}}}
        return {"minMember": count}

    def membership(self, group: str) -> Membership:
        """Tell how a pod says that it belongs to a PodGroup.

        Args:
            group: its name, "" where the pod is placed for itself.
        """
        if not group:
            return Membership()
        match self.kind:
            case "Kubernetes":
                return Membership(spec={"schedulingGroup": {"podGroupName": group}})
            case "SchedulerPlugins":
                return Membership(labels={PLUGINS_LABEL: group})
            case "Volcano":
                return Membership(annotations=dict.fromkeys(VOLCANO_ANNOTATIONS, group))


#: The scheduler of a pod that names none.
DEFAULT_SCHEDULER: Final = "default-scheduler"

KUBERNETES: Final = GangScheduler(
    kind="Kubernetes",
    api="scheduling.k8s.io/v1beta1",
    name="",
    remedy="enable the feature gate GenericWorkload and that API",
    remembers=True,
    has_priority=True,
)
SCHEDULER_PLUGINS: Final = GangScheduler(
    kind="SchedulerPlugins",
    api="scheduling.x-k8s.io/v1alpha1",
    name="scheduler-plugins-scheduler",
    remedy="install scheduler-plugins with its plugin Coscheduling, start the operator for other PodGroups",
    remembers=False,
    has_priority=False,
)
VOLCANO: Final = GangScheduler(
    kind="Volcano",
    api="scheduling.volcano.sh/v1beta1",
    name="volcano",
    remedy="install Volcano, start the operator for other PodGroups",
    remembers=False,
    has_priority=True,
)
_ALL: Final = {one.kind: one for one in (KUBERNETES, SCHEDULER_PLUGINS, VOLCANO)}


def gang_scheduler(kind: GangSchedulerKind, name: str = "") -> GangScheduler:
    """Give one of the three as the operator is set up with it.

    Args:
        kind: whose PodGroups.
        name: the schedulerName of pods whose template names none, "" for the usual one.
    """
    known = _ALL[kind]
    return replace(known, name=name) if name else known


def groups_of_template(template: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name the PodGroups that a template itself puts its pods in, each with the field that says so."""
    about, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels, annotations = about.get("labels") or {}, about.get("annotations") or {}
    found = [
        ("spec.schedulingGroup", (spec.get("schedulingGroup") or {}).get("podGroupName")),
        (f"metadata.labels[{PLUGINS_LABEL}]", labels.get(PLUGINS_LABEL)),
        *((f"metadata.annotations[{key}]", annotations.get(key)) for key in VOLCANO_ANNOTATIONS),
    ]
    return [(where, str(group)) for where, group in found if group]
