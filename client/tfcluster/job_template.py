"""What runs in each task of a job: the usual wishes as arguments, and a whole pod template for all others."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster.errors import ManifestError
from tfcluster.field_names import PATH, spelt
from tfcluster.field_types import misfits
from tfcluster_operator.declaration.spec import MAIN_CONTAINER

Object = dict[str, Any]

_NOWHERE: Final = {PATH: ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContainer:
    """What runs in each task.

    Attributes:
        image: the image; None is the cluster's.
        command: the command line; a text is split as a shell does. None runs TensorFlow's server, unless
            ``template`` says something else.
        args: arguments of the image's own command.
        env: variables; a text or number is the value, a mapping is a ``valueFrom``.
        cpu: the CPU request, such as 2 or "500m".
        memory: the memory, request and limit, such as "4Gi".
        gpus: how many GPUs.
        gpu_resource: what a GPU is called.
        resources: further requests and limits, as a container has them.
        volumes: volumes by the path where they are mounted; a text is the name of a PersistentVolumeClaim, a mapping
            is the source of a volume, such as ``{"configMap": {"name": "script"}}``.
        template: a pod template with everything else; what is said above is put into its main container.
    """

    image: str | None = field(default=None, metadata=_NOWHERE)
    command: Sequence[str | float] | None = field(default=None, metadata=_NOWHERE)
    args: Sequence[str | float] | None = field(default=None, metadata=_NOWHERE)
    env: Mapping[str, str | float | Mapping[str, Any]] | None = field(default=None, metadata=_NOWHERE)
    cpu: str | float | None = field(default=None, metadata=_NOWHERE)
    memory: str | int | None = field(default=None, metadata=_NOWHERE)
    gpus: int | None = field(default=None, metadata=_NOWHERE)
    gpu_resource: str = field(default="nvidia.com/gpu", metadata=_NOWHERE)
    resources: Mapping[str, Mapping[str, Any]] | None = field(default=None, metadata=_NOWHERE)
    volumes: Mapping[str, str | Mapping[str, Any]] | None = field(default=None, metadata=_NOWHERE)
    template: Mapping[str, Any] | None = None


def template_of(job: TaskContainer, image: str | None, where: str) -> Object:
    """Make a job's pod template.

    Raises:
        ManifestError: there is no image, or the template has not the shape of one.
    """
    template: Object = spelt(job.template or {})
    _check_shape(template, where)
    spec = template["spec"] = template.get("spec") or {}
    containers = spec["containers"] = spec.get("containers") or [{"name": MAIN_CONTAINER}]
    main = next((one for one in containers if one.get("name") == MAIN_CONTAINER), containers[0])
    if found := job.image or main.get("image") or image:
        main["image"] = found
    else:
        raise ManifestError(f"{where} has no image", hint="Give image= to the job or to the TFCluster.")
    for key, words in (("command", job.command), ("args", job.args)):
        if words is not None:
            # NB: a text is a sequence, too, of its letters.
            main[key] = _split(words, f"{where}: {key}") if isinstance(words, str) else [str(word) for word in words]
    if job.env:
        kept = [one for one in main.get("env") or () if one.get("name") not in job.env]
        main["env"] = [*kept, *(_variable(name, value) for name, value in job.env.items())]
    if resources := _resources(job, main.get("resources") or {}):
        main["resources"] = resources
    _mount(job.volumes or {}, spec, main)
    return template


def _check_shape(template: Object, where: str) -> None:
    """Refuse a template that lacks the places into which something is put."""
    spec = template.get("spec") or {}
    objects = Sequence[Mapping[str, Any]] | None
    problems = [*misfits(spec, Mapping[str, Any], "template.spec")]
    for key in ("containers", "volumes") if not problems else ():
        problems += misfits(spec.get(key), objects, f"template.spec.{key}")
    for index, one in enumerate(spec.get("containers") or ()) if not problems else ():
        at = f"template.spec.containers[{index}]"
        problems += misfits(one.get("env"), objects, f"{at}.env")
        problems += misfits(one.get("volumeMounts"), objects, f"{at}.volumeMounts")
        problems += misfits(one.get("resources"), Mapping[str, Any] | None, f"{at}.resources")
    if problems:
        raise ManifestError(f"{where}: this is not a pod template:", problems)


def _split(words: str, where: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise ManifestError(f"{where} cannot be split as a shell does: {error}: {words}") from error


def _variable(name: str, value: Any) -> Object:
    if isinstance(value, Mapping):
        return {"name": name, "valueFrom": spelt(value)}
    return {"name": name, "value": str(value)}


def _resources(job: TaskContainer, declared: Mapping[str, Any]) -> Object:
    requests: Object = {} if job.cpu is None else {"cpu": str(job.cpu)}
    limits: Object = {}
    if job.memory is not None:
        requests["memory"] = limits["memory"] = job.memory
    if job.gpus:
        limits[job.gpu_resource] = job.gpus
    own = {"requests": requests, "limits": limits}
    more = job.resources or {}
    keys = dict.fromkeys([*declared, *more, *(key for key, values in own.items() if values)])
    return {key: _joined(declared.get(key), more.get(key), own.get(key)) for key in keys}


def _joined(*values: Any) -> Any:
    """Join mappings, of which the last wins; of other values the last that is there."""
    there = [value for value in values if value]
    if all(isinstance(value, Mapping) for value in there):
        return {key: inner for value in there for key, inner in value.items()}
    return spelt(there[-1])


def _mount(volumes: Mapping[str, str | Mapping[str, Any]], spec: Object, main: Object) -> None:
    taken = {one.get("name") for one in spec.get("volumes") or ()}
    free = (name for number in itertools.count() if (name := f"volume-{number}") not in taken)
    for (path, source), name in zip(volumes.items(), free, strict=False):
        what = {"persistentVolumeClaim": {"claimName": source}} if isinstance(source, str) else spelt(source)
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **what}]
        main["volumeMounts"] = [*(main.get("volumeMounts") or ()), {"name": name, "mountPath": path}]
