"""How a TFJob runs and ends: successPolicy and runPolicy, at either place where they have been."""

from collections.abc import Mapping
from typing import Any, Final

from tfcluster.convert import templates, tfjob
from tfcluster.convert.tfjob import Findings, Outcome, Path, Replicas, TFJob
from tfcluster.terminal import brief

_OURSELVES: Final = "kubeflow.org/training-operator"
_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
#: Fields that a TFJob from before runPolicy has directly in spec.
_NUMBERS: Final = ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_MOVED: Final = (*_NUMBERS, "cleanPodPolicy")
_NOTES: Final = {
    "backoffLimit": (
        "here that many restarts are allowed, and counted under every restartPolicy; TFJob fails at the last of them, "
        "and does not count under ExitCode"
    ),
    "activeDeadlineSeconds": "here a timer enforces it; TFJob does so at the next event",
}
_GANG: Final = {
    "queue": (Outcome.LOSSY, "the operator's PodGroups are in the scheduler's default queue"),
    "minResources": (Outcome.LEFT_OUT, "the scheduler adds up what the pods request"),
    "priorityClass": (Outcome.LOSSY, "name it as priorityClassName in each template; the gang takes it from there"),
    "scheduleTimeoutSeconds": (
        Outcome.LOSSY,
        "it is the time of one try of the scheduler: to give up after a wait, set spec.scheduling.gang.timeoutSeconds",
    ),
}


def convert(spec: Mapping[str, Any], job: TFJob, findings: Findings) -> dict[str, Any]:
    held = _RunPolicy(spec, findings)
    found: dict[str, Any] = {}
    _managed_by(held, found)
    _success(spec, job, findings, found)
    for key in ("suspend", *_NUMBERS):
        if (value := held.find(key)[0]) is not None:
            found[key] = value
            held.carry(key, _NOTES.get(key, ""), outcome=Outcome.NOTED if key in _NOTES else Outcome.SAME)
    _clean_up(held, job, found)
    words = (
        "by default only the tasks of the cluster reach their ports: allow others with spec.isolation.allowFrom, "
        "or all clients, as with TFJob, with spec.isolation.mode: None"
    )
    findings.remark(Outcome.NOTED, (), words, target="spec.isolation")
    return found


class _RunPolicy:
    """The fields of runPolicy, in either place."""

    def __init__(self, spec: Mapping[str, Any], findings: Findings) -> None:
        self.findings = findings
        raw = spec.get("runPolicy")
        if raw is not None and not isinstance(raw, Mapping):
            findings.say(Outcome.REJECTED, ("spec", "runPolicy"), f"it is {brief(raw)}, and must be an object")
            raw = None
        self._raw: Mapping[str, Any] = raw or {}
        self._spec = spec
        findings.moved["spec", "runPolicy"] = ("spec",)

    def find(self, key: str) -> tuple[Any, Path]:
        """Return a field and its place."""
        if key in _MOVED and self._raw.get(key) is None and self._spec.get(key) is not None:
            return self._spec[key], ("spec", key)
        return self._raw.get(key), ("spec", "runPolicy", key)

    def carry(self, key: str, words: str = "", *, outcome: Outcome = Outcome.SAME) -> None:
        """Add the verdict for a field that is carried over under its name."""
        where = self.find(key)[1]
        self.findings.move(where, ("spec", key), words, outcome=outcome)
        if len(where) == 3 and self._spec.get(key) is not None:
            words = f"runPolicy.{key} decides, so that this one is left out"
            self.findings.say(Outcome.LEFT_OUT, ("spec", key), words)


def _managed_by(held: _RunPolicy, found: dict[str, Any]) -> None:
    value, path = held.find("managedBy")
    if value is None:
        return
    if value in ("", _OURSELVES):
        held.findings.say(Outcome.LEFT_OUT, path, "it names TFJob's own operator; left out, it is ours")
    elif value == _MULTIKUEUE:
        found["managedBy"] = value
        words = (
            "nothing runs until Kueue does so: name TFCluster.v1alpha1.tfcluster.dev among MultiKueue's external "
            "frameworks, or remove the field"
        )
        held.carry("managedBy", words, outcome=Outcome.LOSSY)
    else:
        words = f"it is {brief(value)}, and TFJob takes {_OURSELVES} and {_MULTIKUEUE}: write one of them, or remove it"
        held.findings.say(Outcome.REJECTED, path, words)


def _clean_up(held: _RunPolicy, job: TFJob, found: dict[str, Any]) -> None:
    value, path = held.find("cleanPodPolicy")
    if value in (None, ""):
        default = "Running" if job.api_version in tfjob.OLDER else "None"
        found["cleanPodPolicy"] = default
        ours = "ours too" if default == "Running" else "Running is ours"
        words = f"{default} is TFJob's default in this version, {ours}"
        held.findings.say(Outcome.EXPLICIT, path, words, target="spec.cleanPodPolicy")
        return
    found["cleanPodPolicy"] = value
    held.carry("cleanPodPolicy")
    if len(path) == 2 and job.api_version == tfjob.CURRENT:
        words = "TFJob of today looks for it in runPolicy, and leaves all pods: what is written is taken"
        held.findings.say(Outcome.NOTED, path, words, target="spec.cleanPodPolicy")


def add_gang(spec: Mapping[str, Any], job: TFJob, converted: dict[str, Any], findings: Findings) -> None:
    """Add the gang of a schedulingPolicy, or of pods that wait for a PodGroup, to a converted spec with its jobs."""
    held = _RunPolicy(spec, Findings())
    policy, path = held.find("schedulingPolicy")
    if policy is None and not any(templates.is_gang(one.template, job.name) for one in job.replicas):
        return
    if not isinstance(policy or {}, Mapping):
        findings.say(Outcome.REJECTED, path, f"it is {brief(policy)}, and must be an object")
        return
    converted["scheduling"] = {"gang": {}}
    words = (
        "the scheduler that the operator is set up for starts the tasks together (the chart's gangs.scheduler); if "
        "there is none, Ready says GangUnavailable: remove spec.scheduling then"
    )
    findings.remark(Outcome.NOTED, (), words, target="spec.scheduling.gang")
    policy = policy or {}
    if (least := policy.get("minAvailable")) is not None:
        _start_with_fewer(least, (*path, "minAvailable"), job, converted["jobs"], findings)
    for key, (outcome, words) in _GANG.items():
        if (value := policy.get(key)) is not None:
            findings.say(outcome, (*path, key), f"{words} (it is {brief(value)})")


def _start_with_fewer(least: Any, path: Path, job: TFJob, jobs: dict[str, Any], findings: Findings) -> None:
    total, worker = sum(one.count for one in job.replicas), job.of("worker")
    if least == total:
        findings.say(Outcome.NOTED, path, "all tasks start together", target="spec.scheduling.gang")
    elif worker is not None and isinstance(least, int) and total - worker.count <= least < total:
        first = jobs["worker"]["minReplicas"] = least - (total - worker.count)
        words = f"TFJob counts any {least} of its pods; here the other jobs and {first} workers start together"
        findings.move(path, ("spec", "jobs", "worker", "minReplicas"), words, outcome=Outcome.NOTED)
    else:
        words = f"it is {brief(least)}: set spec.jobs.J.minReplicas for the jobs whose tasks can start later"
        findings.say(Outcome.LOSSY, path, words)


def _success(spec: Mapping[str, Any], job: TFJob, findings: Findings, found: dict[str, Any]) -> None:
    path: Path = ("spec", "successPolicy")
    value, worker, leader = spec.get("successPolicy"), job.of("worker"), job.leader
    given = value not in (None, "")
    if value == "":
        findings.say(Outcome.SAME, path, "it is the default")
    if given and value != "AllWorkers":
        words = f"TFJob knows AllWorkers, and takes {brief(value)} for the default: remove it, or write AllWorkers"
        findings.remark(Outcome.LOSSY, path, words)
    decider = leader or worker
    if decider is None:
        words = "without Chief, Master and Worker TFJob never succeeds; here the cluster does when all exit with code 0"
        findings.say(Outcome.NOTED, path, words, target="spec.successPolicy")
        return
    if decider.policy == "Always":
        words = f"{decider.key} starts again whatever its exit code, so that the cluster never succeeds, as with TFJob"
        if job.of("master") is None:
            findings.say(Outcome.NOTED, path, words)
        else:
            findings.say(Outcome.REJECTED, path, f"{words}: set restartPolicy: OnFailure for {decider.key}")
        return
    outcome, words = _verdict_on_success(decider, leads=leader is not None, value=value if given else None)
    # A chief decides by default, and so does a worker that is alone.
    written = decider.job == "master" or (decider.job == "worker" and (decider.count > 1 or given))
    if written:
        found["successPolicy"] = {"jobs": [decider.job], "tasks": "All"}
        findings.moved[path] = path
    if written or given or outcome is Outcome.LOSSY:
        findings.say(outcome, path, words, target="spec.successPolicy.jobs" if written else "")


def _verdict_on_success(decider: Replicas, *, leads: bool, value: Any) -> tuple[Outcome, str]:
    if decider.count == 0:
        return Outcome.LOSSY, f"TFJob succeeds immediately with 0 of {decider.key}: give it at least one replica"
    if leads and value == "AllWorkers":
        return Outcome.NOTED, f"with a {decider.key} it means nothing: the {decider.key} decides"
    if value == "AllWorkers":
        return Outcome.SAME, "all workers decide"
    if not leads and decider.count > 1:
        words = (
            "TFJob succeeds when worker 0 does; here all workers must. If worker 0 ends before the others and they "
            "never do, make it a Chief: its program then finds itself as chief 0 in TF_CONFIG"
        )
        return Outcome.LOSSY, words
    return Outcome.LOSSY if value is not None else Outcome.EXPLICIT, f"the {decider.key} decides"
