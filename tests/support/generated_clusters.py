"""Generate thousands of TFClusters: valid ones with values from the whole schema, and ones with a fault.

A fault has the path of its field, so that a test can check whether the error message names it. The same seed generates
the same TFClusters. Nothing here depends on the operator.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .manifests import IMAGE
from .objects import Object

_JOBS: Final = ("worker", "chief", "ps", "evaluator", "data_loader", "a", "a_1", "x9", "coordinator", "none", "true")
_LARGEST: Final = 2_147_483_647
#: Values of the wrong type for most fields.
_NUMBERS: Final[tuple[Any, ...]] = ("3", "", "many", 1.5, True, [], {}, [1], -1, 10**30, -(2**63), "٣")
_TEXTS: Final[tuple[Any, ...]] = (5, 0.5, True, [], {}, ["grpc"], {"a": "b"})
_OBJECTS: Final[tuple[Any, ...]] = ("x", 5, True, [], ["x"], "")
_LISTS: Final[tuple[Any, ...]] = ("x", 5, True, {}, {"0": "x"}, "")
_CHOICES: Final[tuple[Any, ...]] = ("Nope", "", "all", "ALWAYS", 5, True, [], {}, "Ünï")
_FLAGS: Final[tuple[Any, ...]] = ("true", "", 1, 0, [], {})

_BAD_FILTERS: Final[tuple[Any, ...]] = (
    "worker",
    "",
    "/",
    "/job:",
    "/job:Worker",
    "/job:nobody",
    "/job:nobody/task:0",
    "/job:*",
    "/job:*/task:0",
    "/task:0/job:{job}",
    "/job:{job}/job:{job}",
    "/job:{job}/task:01",
    "/job:{job}/task:9999",
    "/job:{job}/task:99999999999999999999",
    "/job:{job}/task:-1",
    "/job:{job}/task:٣",
    "/job:{job}/replica:1",
    "/job:evaluator",
    "/job:evaluator/task:0",
    "/replica:0",
    "/task:9999",
    "/device:gpu:00",
    "/device:",
    "/gpu:x",
    "/gpu",
    " /job:{job}",
    "/job:{job} ",
    "/job:{job}\n",
    "/job:{job}/",
    "//job:{job}",
    "/job:\uff57orker",
    "/job:" + "w" * 90,
    5,
    None,
    True,
    [],
    {},
    ["/job:{job}"],
)


@dataclass(frozen=True, slots=True)
class Generated:
    """One TFCluster; ``faults`` holds the path of each invalid field."""

    manifest: Object
    faults: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


def generate(seed: int, count: int) -> Iterator[Generated]:
    """Generate TFClusters with unique names, about half of them valid."""
    draw = random.Random(seed)  # noqa: S311 - it draws cases, no secrets
    for number in range(count):
        manifest = _well_formed(draw, number)
        faults: list[str] = []
        if draw.random() < 0.55:
            for _ in range(draw.choice((1, 1, 2))):
                faults.append(_spoil(draw, manifest, already=faults))
        yield Generated(manifest, tuple(faults))


# --- valid ones


def _well_formed(draw: random.Random, number: int) -> Object:
    name = f"g{number}"
    names = draw.sample(_JOBS, draw.choice((1, 1, 2, 2, 3, 4)))
    if draw.random() < 0.02:
        names = [f"j{index}" for index in range(16)]
    jobs: dict[str, Object] = {}
    for job in names:
        jobs[job] = _job(draw, tuple(jobs))
    for job in jobs.values():
        _filter(draw, job, jobs)
    if draw.random() < 0.05:  # the maximal length of a name
        room = 61 - max(len(job) + len(str(_room(jobs[job]) - 1)) for job in jobs)
        name += "-" * (room > len(name) + 1) + "n" * (room - len(name) - 1)
    spec: Object = {"jobs": jobs, **_some(draw, _OF_THE_CLUSTER, 0.15)}
    if draw.random() < 0.2:
        spec["successPolicy"] = _success(draw, jobs)
    if sum(job.get("replicas") or 0 for job in jobs.values()) > 50:
        spec["suspend"] = draw.random() < 0.9
    return {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "metadata": {"name": name, **_some(draw, _OF_THE_METADATA, 0.05)},
        "spec": spec,
        **({"status": draw.choice(_STATUS)} if draw.random() < 0.05 else {}),
    }


_Choices = Mapping[str, Sequence[Any]]

_OF_THE_METADATA: Final[_Choices] = {
    "labels": ({}, {"a": ""}, {"example.com/team": "x"}, {"tfcluster.dev/cluster": "another"}, None),
    "annotations": ({}, {"a": "ünï\u0000cødé\n" * 50}, {"tfcluster.dev/view": "x"}),
    "finalizers": ([], ["x"], ["example.com/wait"], ["foregroundDeletion"]),
}
_OF_THE_CLUSTER: Final[_Choices] = {
    "rpcLayer": ("grpc", "grpc+gdr", "g", "g" * 16, None),
    "port": (1, 65535, 2222, 8470, None),
    "clusterDomain": ("cluster.local", "a", "0", "-".join(["a"] * 64) + "a", None),
    "suspend": (False, True, None),
    "backoffLimit": (0, 1, _LARGEST, None),
    "activeDeadlineSeconds": (1, 3600, _LARGEST, None),
    "cleanPodPolicy": ("Running", "All", "None", None),
    "ttlSecondsAfterFinished": (0, 60, _LARGEST, None),
    "updateStrategy": (
        {},
        None,
        {"type": "OnDelete"},
        {"type": "Recreate"},
        {"type": "RollingUpdate"},
        *(
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
            for most in (1, 3, 10_000, "1%", "33%", "99%", "100%", None)
        ),
        {"type": "RollingUpdate", "rollingUpdate": {}},
    ),
    "forceDeleteAfterSeconds": (0, 30, _LARGEST, None),
    "failedPodsHistoryLimit": (0, 1, 10, None),
    "managedBy": ("example.com/queue", "tfcluster.dev/tfcluster-operator", "a/" + "b" * 251, None),
    "resolver": ({"delivery": "None"}, {"delivery": "None"}, {"delivery": "ConfigMap"}, {}, None),
}
_OF_A_JOB: Final[_Choices] = {
    "replicas": (0, 1, 1, 2, 2, 3, None),
    "port": (1, 65535, 2223, None),
    "drainTimeoutSeconds": (0, 1, 86_400, None),
    "deviceFilters": ([], None),
    "taskDeviceFilters": ({}, None),
    "startAfter": ([], None),
}
_STATUS: Final = (
    {},
    {"observedGeneration": 99, "epoch": 99},
    {"conditions": [{"type": "Succeeded", "status": "True"}]},
    {"jobs": {"worker": {"replicas": -1}}, "internal": {"jobs": {"worker": {"completed": "x-y,,9-1"}}}},
    "done",
    5,
    [],
)


def _some(draw: random.Random, choices: _Choices, share: float) -> Object:
    return {name: copy.deepcopy(draw.choice(values)) for name, values in choices.items() if draw.random() < share}


def _room(job: Object) -> int:
    """Return the maximal number of tasks of a job."""
    replicas = 1 if job.get("replicas") is None else job["replicas"]
    return int(job.get("maxReplicas") or replicas)


def _job(draw: random.Random, before: Sequence[str]) -> Object:
    job = {"template": _template(draw), **_some(draw, _OF_A_JOB, 0.3)}
    policy = draw.choice((None, None, "OnFailure", "Always", "Never", "ExitCode"))
    if policy is not None:
        job["restartPolicy"] = policy
        if draw.random() < 0.3:
            job["template"]["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    if policy != "Never" and draw.random() < 0.3:
        job["restartScope"] = draw.choice(("Task", "Job", "Cluster", None))
    if before and draw.random() < 0.15:
        job["startAfter"] = draw.sample(before, draw.randint(1, len(before)))
    if draw.random() < 0.2:
        job["maxReplicas"] = max(1, job.get("replicas") or 1) + draw.choice((0, 1, 7))
    if draw.random() < 0.004:
        job["replicas"], job["maxReplicas"] = draw.choice((100, 600)), 600
    return job


def _filter(draw: random.Random, job: Object, jobs: Mapping[str, Object]) -> None:
    if draw.random() < 0.3:
        job["deviceFilters"] = _filters(draw, jobs)
    if draw.random() < 0.15 and (room := _room(job)):
        count = room if draw.random() < 0.1 else 1
        indices = draw.sample(range(room), min(count, 30))
        job["taskDeviceFilters"] = {str(index): _filters(draw, jobs) for index in indices}


def _filters(draw: random.Random, jobs: Mapping[str, Object]) -> list[str]:
    seen = [name for name in jobs if name != "evaluator"]
    found = []
    for _ in range(draw.choice((0, 1, 1, 2, 16))):
        if not seen or draw.random() < 0.1:
            found.append(draw.choice(("/device:GPU:0", "/cpu:0", "/gpu:3", "/replica:0/device:TPU_SYSTEM")))
            continue
        name = draw.choice(seen)
        text = f"/job:{name}" + draw.choice(("", "", "/replica:0"))
        if (room := _room(jobs[name])) and draw.random() < 0.5:
            text += f"/task:{draw.randrange(room)}"
        found.append(text + draw.choice(("", "", "", "/device:GPU:0", "/device:CPU", "/gpu:1")))
    return found


def _success(draw: random.Random, jobs: Mapping[str, Object]) -> Object:
    able = [name for name, job in jobs.items() if job.get("restartPolicy") != "Always"]
    policy: Object = {"tasks": draw.choice(("All", "Any", None))}
    if able and draw.random() < 0.7:
        policy["jobs"] = draw.sample(able, draw.randint(1, len(able)))
    return policy


def _template(draw: random.Random) -> Object:
    container: Object = {"name": draw.choice(("tensorflow", "main", "x" * 63)), "image": IMAGE}
    container |= _some(
        draw,
        {
            "command": (["true"], [], None, ["sh", "-c", "exit 1"]),
            "env": (
                [],
                None,
                [{"name": "PYTHONPATH", "value": "/x"}],
                [{"name": "A", "value": "ünï\n$(B)"}, {"name": "B"}],
                [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            ),
            "resources": (
                {},
                None,
                {"limits": {"nvidia.com/gpu": 1, "cpu": "100m"}},
                {"limits": {"memory": "1Gi", "amd.com/gpu": "2"}},
                {"requests": {"cpu": "0.5"}},
            ),
            "volumeMounts": ([], None),
            "readinessProbe": ({"exec": {"command": ["true"]}},),
        },
        0.1,
    )
    spec: Object = {
        "containers": [container],
        **_some(
            draw,
            {
                "initContainers": ([{"name": "init", "image": IMAGE}], [], None),
                "volumes": ([{"name": "v", "emptyDir": {}}], [], None),
                "hostNetwork": (False,),
                "nodeSelector": ({"a": "b"}, {}),
                "enableServiceLinks": (True,),
                "terminationGracePeriodSeconds": (0, 600),
            },
            0.05,
        ),
    }
    if draw.random() < 0.1:
        spec["containers"].append({"name": "side", "image": IMAGE, "env": None})
    about = _some(
        draw,
        {"labels": ({"team": "x"}, {}, None, {"a.b/c": ""}), "annotations": ({"note": "ünï"}, {}, None)},
        0.1,
    )
    return {"spec": spec, **({"metadata": about} if draw.random() < 0.5 else {})}


# --- faults

_Fault = Callable[[random.Random, Object, str], str]


def _spoil(draw: random.Random, manifest: Object, *, already: Sequence[str]) -> str:
    """Put one fault into a manifest; return the path of its field."""
    spec = manifest.get("spec")
    whole = isinstance(spec, dict) and isinstance(spec.get("jobs"), dict) and spec["jobs"]
    while True:
        if not whole or draw.random() < 0.06:
            path = _spoil_the_top(draw, manifest)
        else:
            job = draw.choice(sorted(spec["jobs"]))
            sound = not any(path == "spec.jobs" or path.startswith(f"spec.jobs.{job}") for path in already)
            kinds = _OF_JOBS + 2 * _IN_A_JOB if sound and isinstance(spec["jobs"][job], dict) else (_in_the_spec,)
            path = draw.choice(kinds)(draw, manifest, job)
        if path:
            return path


def _spoil_the_top(draw: random.Random, manifest: Object) -> str:
    field, value = draw.choice(
        (
            ("spec", None),
            *(("spec", wrong) for wrong in _OBJECTS),
            ("spec", {}),
            ("spec", {"job": {}}),
            *(("spec.jobs", wrong) for wrong in (None, {}, *_OBJECTS)),
            ("spce", {}),
            ("spec.jobs", {f"j{index}": {"template": _template(draw)} for index in range(17)}),
        )
    )
    if field == "spec.jobs":
        manifest["spec"] = {"jobs": value}
    else:
        manifest[field] = value
    return field


_SPEC_WRONG: Final[_Choices] = {
    "rpcLayer": ("GRPC", "", "grpc tls", "g" * 17, "\uff47rpc", *_TEXTS),
    "port": (0, 65536, *_NUMBERS),
    "clusterDomain": ("", ".local", "a..b", "A.B", "a.", "a" * 129, "ü.local", *_TEXTS),
    "suspend": _FLAGS,
    "backoffLimit": (_LARGEST + 1, *_NUMBERS),
    "activeDeadlineSeconds": (0, _LARGEST + 1, *_NUMBERS),
    "cleanPodPolicy": _CHOICES,
    "ttlSecondsAfterFinished": (_LARGEST + 1, *_NUMBERS),
    "forceDeleteAfterSeconds": (_LARGEST + 1, *_NUMBERS),
    "failedPodsHistoryLimit": (11, *_NUMBERS),
    "managedBy": ("", "queue", "a b/c", "example.com/", "a/" + "b" * 252, *_TEXTS),
    "resolver": _OBJECTS,
    "resolver.delivery": _CHOICES,
    "updateStrategy": _OBJECTS,
    "updateStrategy.type": _CHOICES,
    "updateStrategy.rollingUpdate": ({"maxUnavailable": 1}, *_OBJECTS),
    "successPolicy": _OBJECTS,
    "successPolicy.tasks": _CHOICES,
    "successPolicy.jobs": ([], ["nobody"], ["Worker"], [5], [None], [[]], ["w" * 64], ["a"] * 17, *_LISTS),
    "unknown": (None, 1, {}, "x"),
    "replicas": (1,),
}


def _in_the_spec(draw: random.Random, manifest: Object, _: str) -> str:
    path = draw.choice(sorted(_SPEC_WRONG))
    value = copy.deepcopy(draw.choice(_SPEC_WRONG[path]))
    if path == "updateStrategy.rollingUpdate" and isinstance(value, dict):
        manifest["spec"]["updateStrategy"] = {"type": draw.choice(("Recreate", "OnDelete")), "rollingUpdate": value}
        return f"spec.{path}"
    _put(manifest["spec"], path, value)
    if path == "unknown" and value is None:
        manifest["spec"][path] = "x"
    return f"spec.{path}"


def _max_unavailable(draw: random.Random, manifest: Object, _: str) -> str:
    most = draw.choice((0, -1, 10_001, 10**30, 1.5, "0%", "101%", "5", "", "abc", "-5%", "1.5%", "٢%", True, [], {}))
    manifest["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
    return "spec.updateStrategy.rollingUpdate.maxUnavailable"


def _job_name(draw: random.Random, manifest: Object, job: str) -> str:
    bad = ("my-worker", "Worker", "1a", "", "a_", "_a", "größe", "a.b", "a/b", "a b", "-", "w" * 64, "w" * 300)
    wrong = draw.choice(bad)
    manifest["spec"]["jobs"][wrong] = copy.deepcopy(manifest["spec"]["jobs"][job])
    return "spec.jobs"


def _twin(_: random.Random, manifest: Object, __: str) -> str:
    """Give two jobs names that are equal in DNS."""
    for name in ("t_x", "t-x"):
        manifest["spec"]["jobs"][name] = {"template": {"spec": {"containers": [{"name": "a", "image": IMAGE}]}}}
    return "spec.jobs"


def _too_many(draw: random.Random, manifest: Object, job: str) -> str:
    field, count = draw.choice(
        (("replicas", 10_001), ("replicas", 10**9), ("maxReplicas", 10_001), ("replicas", 10_000), ("maxReplicas", 0))
    )
    of_job = manifest["spec"]["jobs"][job]
    of_job[field] = count
    if count != 10_000:
        return f"spec.jobs.{job}.{field}"
    of_job.pop("maxReplicas", None)
    manifest["spec"]["jobs"]["more"] = {"template": _template(draw)}
    return "spec.jobs"


def _too_many_filters(_: random.Random, manifest: Object, job: str) -> str:
    for_tasks = {str(index): [] for index in range(513)}
    manifest["spec"]["jobs"][job] |= {"replicas": 1, "maxReplicas": 600, "taskDeviceFilters": for_tasks}
    return f"spec.jobs.{job}.taskDeviceFilters"


_JOB_WRONG: Final[_Choices] = {
    "": ("job", 5, [], True),
    "replicas": (*_NUMBERS,),
    "maxReplicas": (*_NUMBERS,),
    "port": (0, 65536, *_NUMBERS),
    "restartPolicy": _CHOICES,
    "restartScope": _CHOICES,
    "drainTimeoutSeconds": (86_401, *_NUMBERS),
    "startAfter": (["nobody"], [5], [None], [{}], ["chief", "chief"], ["w" * 64], *_LISTS),
    "deviceFilters": (["/cpu:0"] * 17, *_LISTS),
    "taskDeviceFilters": _OBJECTS,
    "unknown": ("x", 1, {}),
    "replica": (1,),
    "template": (None, {}, {"spec": None}, *_OBJECTS),
}


def _in_a_job(draw: random.Random, manifest: Object, job: str) -> str:
    field = draw.choice(sorted(_JOB_WRONG))
    value = copy.deepcopy(draw.choice(_JOB_WRONG[field]))
    if not field:
        manifest["spec"]["jobs"][job] = value
        return f"spec.jobs.{job}"
    manifest["spec"]["jobs"][job][field] = value
    return f"spec.jobs.{job}.{field}"


def _bad_filter(draw: random.Random, manifest: Object, job: str) -> str:
    text = draw.choice(_BAD_FILTERS)
    if isinstance(text, str):
        text = text.replace("{job}", job)
    of_job = manifest["spec"]["jobs"][job]
    if draw.random() < 0.5:
        of_job["deviceFilters"] = draw.choice(([text], ["/cpu:0", text]))
        return f"spec.jobs.{job}.deviceFilters"
    if not _is_count(of_job.get("replicas")):
        of_job["replicas"] = 1
    of_job["taskDeviceFilters"] = {"0": [text]}
    return f"spec.jobs.{job}.taskDeviceFilters"


def _bad_index(draw: random.Random, manifest: Object, job: str) -> str:
    key = draw.choice(("x", "-1", "01", "99999999999", "", "1.0", "٣", "1_0", " 1", "9999", "0x1", "999999999"))
    manifest["spec"]["jobs"][job]["taskDeviceFilters"] = {key: []}
    return f"spec.jobs.{job}.taskDeviceFilters"


def _circle(draw: random.Random, manifest: Object, job: str) -> str:
    jobs = manifest["spec"]["jobs"]
    if draw.random() < 0.5:
        jobs[job]["startAfter"] = [job]
    else:
        jobs["circular"] = {"template": _template(draw), "startAfter": [job]}
        jobs[job]["startAfter"] = ["circular"]
    return f"spec.jobs.{job}.startAfter"


def _fewer_than_now(_: random.Random, manifest: Object, job: str) -> str:
    manifest["spec"]["jobs"][job] |= {"replicas": 3, "maxReplicas": 2}
    return f"spec.jobs.{job}.maxReplicas"


def _scope_under_never(draw: random.Random, manifest: Object, job: str) -> str:
    of_job = manifest["spec"]["jobs"][job]
    of_job |= {"restartPolicy": "Never", "restartScope": draw.choice(("Job", "Cluster"))}
    return f"spec.jobs.{job}.restartScope"


def _success_under_always(_: random.Random, manifest: Object, job: str) -> str:
    manifest["spec"]["jobs"][job]["restartPolicy"] = "Always"
    manifest["spec"]["jobs"][job]["template"]["spec"].pop("restartPolicy", None)
    manifest["spec"]["successPolicy"] = {"jobs": [job]}
    return "spec.successPolicy.jobs"


_CONTAINER: Final = {"name": "c", "image": IMAGE}
_POD_WRONG: Final[_Choices] = {
    "template.unknown": ("x",),
    "template.metadata": _OBJECTS,
    "template.metadata.name": ("x",),
    "template.metadata.labels": ({"a": 5}, {"app.kubernetes.io/name": "x"}, {"tfcluster.dev/job": "x"}, *_OBJECTS),
    "template.metadata.annotations": ({"a": []}, {"tfcluster.dev/view": "x"}, {"a": True}, *_OBJECTS),
    "template.spec": _OBJECTS,
    "template.spec.containers": (None, [], [None], [5], ["x"], [{}], [_CONTAINER] * 33, *_LISTS),
    "template.spec.containers.0.name": _TEXTS,
    "template.spec.containers.0.image": (None, *_TEXTS),
    "template.spec.containers.0.command": ("python", {}, [5], 5),
    "template.spec.containers.0.imagee": ("x",),
    "template.spec.containers.0.env": (
        [5],
        [None],
        ["A=B"],
        [{"value": "x"}],
        [{"name": 5}],
        [{"name": "TFCLUSTER_JOB", "value": "x"}],
        [{"name": "A", "value": 5}],
        [{"name": "A"}, {"name": "A"}],
        [{"name": "PYTHONPATH", "value": {}}],
        *_LISTS,
    ),
    "template.spec.containers.0.volumeMounts": (
        [5],
        ["x"],
        [{"name": "v", "mountPath": "/etc/tfcluster/x"}],
        [{"name": "v", "mountPath": "/opt/tfcluster-resolver"}],
        *_LISTS,
    ),
    "template.spec.containers.0.resources": _OBJECTS,
    "template.spec.containers.0.resources.limits": (
        {"cpu": "lots"},
        {"cpu": 0.5},
        {"nvidia.com/gpu": {}},
        {"memory": []},
        {"cpu": True},
        *_OBJECTS,
    ),
    "template.spec.initContainers": ([None], [5], ["x"], [{}], *_LISTS),
    "template.spec.volumes": (
        [5],
        [None],
        ["x"],
        [{}],
        [{"name": "tfcluster-view", "emptyDir": {}}],
        [{"name": "tfcluster-resolver", "emptyDir": {}}],
        *_LISTS,
    ),
    "template.spec.hostNetwork": (True, "true", 1),
    "template.spec.hostname": ("h", "", 5),
    "template.spec.subdomain": ("s", "", 5),
    "template.spec.restartPolicy": ("Sometimes", "", 5),
    "template.spec.nodeSelector": ({"a": 5}, *_OBJECTS),
    "template.spec.ephemeralContainers": ([_CONTAINER],),
}


def _in_the_template(draw: random.Random, manifest: Object, job: str) -> str:
    of_job = manifest["spec"]["jobs"][job]
    if not isinstance((of_job.get("template") or {}).get("spec"), dict):
        return ""
    path = draw.choice(sorted(_POD_WRONG))
    _put(of_job, path, copy.deepcopy(draw.choice(_POD_WRONG[path])))
    return f"spec.jobs.{job}.{path}"


_OF_JOBS: Final[tuple[_Fault, ...]] = (_in_the_spec,) * 6 + (
    _max_unavailable,
    _job_name,
    _twin,
    _too_many,
    _too_many_filters,
    _circle,
    _success_under_always,
)
_IN_A_JOB: Final[tuple[_Fault, ...]] = (
    _in_a_job,
    _in_a_job,
    _bad_filter,
    _bad_filter,
    _bad_index,
    _in_the_template,
    _in_the_template,
    _in_the_template,
    _fewer_than_now,
    _scope_under_never,
)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _put(holder: Object, path: str, value: Any) -> None:
    """Set the value at a path; create missing parents, and replace those that cannot hold the next part."""
    parts = path.split(".")
    found: Any = holder
    for part, after in itertools.pairwise(parts):
        key = int(part) if isinstance(found, list) else part
        wanted = list if after.isdigit() else dict
        if isinstance(key, str) and not isinstance(found.get(key), wanted):
            found[key] = wanted()
        found = found[key]
    found[parts[-1]] = value
