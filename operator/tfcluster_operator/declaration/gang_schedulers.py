"""The schedulers that place gangs with PodGroups: kube-scheduler, scheduler-plugins and Volcano.

They differ in the API of their PodGroups, in how a pod names its PodGroup, and in the status of a PodGroup.  The
operator is configured for one of them, so manifests are the same for all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

#: The names of the schedulers, as the chart and the operator's option have them.
GangSchedulerKind = Literal["Kubernetes", "SchedulerPlugins", "Volcano"]

#: scheduler-plugins: the label of a pod with the name of its PodGroup.
PLUGINS_LABEL: Final = "scheduling.x-k8s.io/pod-group"
#: Volcano: the annotations of a pod with the name of its PodGroup; older versions read only the first.
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """One of the schedulers; ``remembers``: the status of a PodGroup keeps the fact that it was placed."""

    kind: GangSchedulerKind
    api: str
    name: str
    remedy: str
    remembers: bool
    has_priority: bool

    @property
    def default_name(self) -> str:
        """The schedulerName of a pod without one in its template."""
        return self.name or DEFAULT_SCHEDULER

    def counting(self, count: int) -> dict[str, Any]:
        """Return the fields of a PodGroup's spec with the number of pods that are placed together."""
        if self.kind == "Kubernetes":
            return {"schedulingPolicy": {"gang": {"minCount": count}}}
        return {"minMember": count}

    def membership(self, group: str) -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Any]]:
        """Return the labels, the annotations and the spec fields of a pod that name its PodGroup, if it has one."""
        match self.kind if group else "":
            case "Kubernetes":
                return {}, {}, {"schedulingGroup": {"podGroupName": group}}
            case "SchedulerPlugins":
                return {PLUGINS_LABEL: group}, {}, {}
            case "Volcano":
                return {}, dict.fromkeys(VOLCANO_ANNOTATIONS, group), {}
            case _:
                return {}, {}, {}

    def group_of(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], field: str, makers: Iterable[str]
    ) -> str:
        """Return the name of a pod's PodGroup, "" without one; ``makers`` has its UID and its controller's."""
        match self.kind:
            case "Kubernetes":
                return field
            case "SchedulerPlugins":
                return labels.get(PLUGINS_LABEL, "")
            case "Volcano":
                group = next((annotations[key] for key in VOLCANO_ANNOTATIONS if annotations.get(key)), "")
                # Volcano gives a pod without a PodGroup its own one, named after the pod or its controller.
                return "" if group in {f"podgroup-{uid}" for uid in makers} else group


#: The schedulerName that the API server sets by default.
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
    """Return a scheduler with the configured name."""
    known = _ALL[kind]
    return replace(known, name=name) if name else known


def groups_of_template(template: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the PodGroups that a template names, each with its field."""
    about, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels, annotations = about.get("labels") or {}, about.get("annotations") or {}
    found = [
        ("spec.schedulingGroup", (spec.get("schedulingGroup") or {}).get("podGroupName")),
        (f"metadata.labels[{PLUGINS_LABEL}]", labels.get(PLUGINS_LABEL)),
        *((f"metadata.annotations[{key}]", annotations.get(key)) for key in VOLCANO_ANNOTATIONS),
    ]
    return [(where, str(group)) for where, group in found if group]
