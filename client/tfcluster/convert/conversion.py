"""From one TFJob to one TFCluster, and from a file with TFJobs to a file with TFClusters."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import run_policy, templates, tfjob
from tfcluster.convert.tfjob import Findings, Outcome, Path, Replicas, TFJob, Verdict, leaves
from tfcluster.errors import ManifestError
from tfcluster.manifest.files import objects
from tfcluster.manifest.validate import NO_FIELD, complete, problems, unreadable
from tfcluster.manifest.yaml import write
from tfcluster.terminal import brief
from tfcluster_operator.declaration import naming

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Fields of metadata that the API server sets.
_SERVERS: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink"),
)
#: Limits of a TFCluster, as in the CRD.
MOST_TASK_FILTERS: Final = 512
MOST_TASKS_WITH_TF_CONFIG: Final = 1_000
_QUEUE: Final = "kueue.x-k8s.io/"
_LOST: Final = "neither a TFJob nor a TFCluster has this field: put it where it belongs, or remove it"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of converting a TFJob.

    ``cluster`` is the TFCluster, None if a field is rejected; ``moved`` says where nodes of the TFJob are in it,
    with their contents.
    """

    job: TFJob
    cluster: dict[str, Any] | None
    verdicts: tuple[Verdict, ...]
    moved: Mapping[Path, Path]

    def of(self, *outcomes: Outcome) -> list[Verdict]:
        return [one for one in self.verdicts if one.outcome in outcomes]


def convert(manifest: Mapping[str, Any]) -> Conversion:
    findings = Findings()
    version = str(manifest.get("apiVersion"))
    findings.move(("apiVersion",), ("apiVersion",))
    findings.move(("kind",), ("kind",))
    if version not in tfjob.VERSIONS:
        known = ", ".join(tfjob.VERSIONS)
        words = f"{brief(manifest.get('apiVersion'))} is none of {known}: write the TFJob as one of these"
        findings.say(Outcome.REJECTED, ("apiVersion",), words)
        # The fields of an unknown version cannot be judged.
        return Conversion(tfjob.read(manifest, Findings()), None, tuple(findings.verdicts), {})
    job = tfjob.read(manifest, findings)
    cluster: dict[str, Any] = {"apiVersion": naming.API_VERSION, "kind": naming.KIND}
    cluster["metadata"] = _metadata(manifest, findings)
    cluster["spec"] = _spec(manifest, job, findings)
    for path, value in leaves(manifest):
        if value is None or value in ({}, []) or findings.judged(path):
            continue
        if path[0] == "status":
            findings.say(Outcome.LEFT_OUT, ("status",), "it says what has happened to the TFJob")
        else:
            findings.say(Outcome.LOSSY, path, f"{_LOST} (it is {brief(value)})")
    _judge(cluster, findings)
    return Conversion(job, None if findings.refused else cluster, tuple(findings.verdicts), findings.moved)


def _judge(cluster: Mapping[str, Any], findings: Findings) -> None:
    """Report what the API server or the operator would reject or drop, by its place in the TFJob."""
    refused = [one.path for one in findings.verdicts if one.outcome is Outcome.REJECTED]
    for one in problems(cluster) or unreadable(complete(cluster, "default")):
        known = [(from_, to) for from_, to in findings.moved.items() if one.where[: len(to)] == to]
        source, target = max(known, key=lambda pair: len(pair[1]), default=((), ()))
        path = (*source, *one.where[len(target) :])
        if any(path[: len(told)] == told for told in refused):
            continue
        outcome, words = Outcome.REJECTED, one.words
        if words.startswith(NO_FIELD):
            outcome = Outcome.NOTED
            words = "no pod has this field: the API server drops it, as it does from a TFJob. Correct it, or remove it"
        findings.remark(outcome, path, words)


def _metadata(manifest: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    raw = manifest.get("metadata")
    if not isinstance(raw, Mapping) or not (raw.get("name") or raw.get("generateName")):
        words = "the name is missing: write metadata.name (for a trial of Katib any name)"
        findings.say(Outcome.REJECTED, ("metadata",), words)
        return {}
    findings.moved["metadata",] = ("metadata",)
    found: dict[str, Any] = {}
    for key, value in raw.items():
        path: Path = ("metadata", key)
        if key in _SERVERS:
            findings.say(Outcome.LEFT_OUT, path, "the API server sets it")
        elif key in ("labels", "annotations"):
            if kept := _words(value, path, findings):
                found[key] = kept
        elif key in ("name", "generateName", "namespace"):
            found[key] = value
            findings.move(path, path)
        elif key in ("finalizers", "ownerReferences"):
            words = "its writer does not know TFClusters: add it again if you need it"
            findings.say(Outcome.LOSSY, path, words)
    return found


def _words(held: Any, path: Path, findings: Findings) -> Any:
    if not isinstance(held, Mapping):
        findings.move(path, path)
        return held
    kept = copy.deepcopy(held)
    for key in list(held):
        if key == _APPLIED:
            del kept[key]  # type: ignore[attr-defined]  # what is a mapping in a manifest is a dict
            findings.say(Outcome.LEFT_OUT, (*path, key), "it holds the TFJob")
        elif path[-1] == "labels" and str(key).startswith(_QUEUE):
            words = "it waits in this queue if the operator can read Kueue's objects: see docs/how-to/kueue.md"
            findings.move((*path, key), (*path, key), words, outcome=Outcome.NOTED)
        else:
            findings.move((*path, key), (*path, key))
    return kept


def _spec(manifest: Mapping[str, Any], job: TFJob, findings: Findings) -> dict[str, Any]:
    raw = manifest.get("spec")
    raw = raw if isinstance(raw, Mapping) else {}
    findings.moved["spec",] = ("spec",)
    spec: dict[str, Any] = {}
    ports = {one.port for one in job.replicas}
    # The default of the CRD is the same as TFJob's.
    if len(ports) == 1 and ports != {tfjob.DEFAULT_PORT}:
        spec["port"] = next(iter(ports))
    spec |= run_policy.convert(raw, job, findings)
    _resolver(spec, job, findings)
    jobs: dict[str, Any] = {}
    findings.moved["spec", "tfReplicaSpecs"] = ("spec", "jobs")
    for one in job.replicas:
        jobs[one.job] = _job(one, job, findings)
        if len(ports) > 1 and one.port != tfjob.DEFAULT_PORT:
            jobs[one.job] = {"port": one.port, **jobs[one.job]}
    spec["jobs"] = jobs
    run_policy.add_gang(raw, job, spec, findings)
    if job.dynamic:
        _filters(jobs, job, findings)
    elif raw.get("enableDynamicWorker") is False:
        findings.say(Outcome.SAME, ("spec", "enableDynamicWorker"), "a task without deviceFilters sees every task")
    return spec


def _resolver(spec: dict[str, Any], job: TFJob, findings: Findings) -> None:
    """Keep TF_CONFIG and the image's own PYTHONPATH as the programs had them with TFJob."""
    tasks = sum(one.count for one in job.replicas)
    if job.distributed and tasks <= MOST_TASKS_WITH_TF_CONFIG:
        spec["resolver"] = {"tfConfig": "Environment"}
        words = "the operator sets TF_CONFIG, as TFJob does; programs can read the view in /etc/tfcluster as well"
        findings.remark(Outcome.EXPLICIT, (), words, target="spec.resolver.tfConfig")
        return
    if job.distributed:
        words = (
            f"{tasks:,} tasks are more than the {MOST_TASKS_WITH_TF_CONFIG:,} whose TF_CONFIG the operator sets: begin "
            "each command with `python3 -m tfcluster_resolver exec --`, which sets it from the view"
        )
        findings.remark(Outcome.LOSSY, ("spec", "tfReplicaSpecs"), words)
    else:
        spec["resolver"] = {"delivery": "None"}
        words = "with ConfigMap the pods get PYTHONPATH, which hides the image's own"
        findings.remark(Outcome.EXPLICIT, (), words, target="spec.resolver.delivery")


def _job(one: Replicas, job: TFJob, findings: Findings) -> dict[str, Any]:
    path: Path = ("spec", "tfReplicaSpecs", one.key)
    target: Path = ("spec", "jobs", one.job)
    findings.moved[path] = target
    found: dict[str, Any] = {}
    if one.replicas is not None:
        found["replicas"] = one.replicas
        findings.move((*path, "replicas"), (*target, "replicas"))
    found["restartPolicy"] = _restart_policy(one, job, path, target, findings)
    if one.job == "evaluator" and (job.api_version == tfjob.CURRENT):
        words = (
            "only its own TF_CONFIG has it in the cluster, because parameter server training waits for every task "
            "there. If your program looks for the evaluator in every TF_CONFIG, set spec.resolver.tfConfig to TFJob"
        )
        findings.remark(Outcome.LOSSY, path, words, target="spec.jobs.evaluator")
    if one.job == "master":
        words = "it keeps its name, which TensorFlow 1 knows; a program of TensorFlow 2 asks for chief: rename the job"
        findings.remark(Outcome.NOTED, path, words, target="spec.jobs.master")
    if one.job not in tfjob.KNOWN_JOBS:
        words = f"TFJob counts no {one.key} for success or failure: here its failure fails the cluster under Never"
        findings.remark(Outcome.LOSSY, path, words, target=f"spec.jobs.{one.job}")
    if one.port != tfjob.DEFAULT_PORT:
        words = f"the port named {tfjob.PORT_NAME} is {one.port}"
        findings.remark(Outcome.SAME, (*path, "template"), words, target="spec.port or spec.jobs.J.port")
    template = copy.deepcopy(one.template)
    findings.moved[*path, "template"] = (*target, "template")
    if isinstance(template, dict):
        templates.tidy(template, (*path, "template"), job, one, findings)
        found["template"] = template
    return found


def _restart_policy(one: Replicas, job: TFJob, path: Path, target: Path, findings: Findings) -> str:
    where, to = (*path, "restartPolicy"), (*target, "restartPolicy")
    if job.dynamic and one.job == "worker" and one.policy in ("Never", "ExitCode"):
        words = f"under {one.policy} TFJob continues without a failed worker; here it is restarted, up to backoffLimit"
        findings.move(where, to, words, outcome=Outcome.LOSSY)
        return "OnFailure"
    if one.restart_policy:
        findings.move(where, to)
    else:
        words = "Never is TFJob's default, OnFailure is ours"
        findings.move(where, to, words, outcome=Outcome.EXPLICIT)
    return one.policy


def _filters(jobs: dict[str, Any], job: TFJob, findings: Findings) -> None:
    """Show each task what TFJob's sparse TF_CONFIG lists, so that workers can be added and removed."""
    path: Path = ("spec", "enableDynamicWorker")
    worker, ps = job.of("worker"), job.of("ps")
    if worker is not None and ps is not None:
        jobs["worker"] = _before_template(jobs["worker"], {"deviceFilters": ["/job:ps"]})
        words = "a worker sees itself and the ps, so that others can come and go"
        findings.say(Outcome.SAME, path, words, target="spec.jobs.worker.deviceFilters")
    for one in (ps,) if ps is not None else (worker,):
        if one is not None and one.count:
            jobs[one.job] = _before_template(jobs[one.job], _only_itself(one, path, findings))
    for one in job.replicas:
        if one.job not in ("worker", "ps"):
            words = "TFJob gives it an empty cluster; here it sees every task"
            findings.say(Outcome.NOTED, path, words, target=f"spec.jobs.{one.job}")
    if worker is None:
        findings.say(Outcome.NOTED, path, "the TFJob does not have a Worker, so the field does not matter")


def _only_itself(one: Replicas, path: Path, findings: Findings) -> dict[str, Any]:
    """Return the filters that show the tasks of a job only themselves."""
    if one.count <= MOST_TASK_FILTERS:
        words = f"a {one.job} sees itself; a task that is added later sees all tasks until it has a filter"
        findings.say(Outcome.SAME, path, words, target=f"spec.jobs.{one.job}.taskDeviceFilters")
        # A filter cannot be empty, and without a filter a task sees everything.
        return {"taskDeviceFilters": {str(index): [f"/job:{one.job}/task:{index}"] for index in range(one.count)}}
    words = f"each of more than {MOST_TASK_FILTERS} {one.job} sees all of them instead of itself alone"
    findings.say(Outcome.LOSSY, path, words, target=f"spec.jobs.{one.job}.deviceFilters")
    return {"deviceFilters": [f"/job:{one.job}"]}


def _before_template(held: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Put fields before the template, which is long."""
    return {**{key: held[key] for key in held if key != "template"}, **more, "template": held.get("template")}


_TEMPLATES: Final = (
    "If this is a Helm template, run `helm template` first. Otherwise write a value for {{…}}, convert, and restore it."
)


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of converting a file.

    ``objects`` are those of the new file, None for a rejected TFJob; ``conversions`` are its TFJobs in their order.
    """

    objects: tuple[Any, ...]
    conversions: tuple[Conversion, ...]

    @property
    def text(self) -> str:
        return write(*self.objects, width=1 << 20)  # no line is folded


def convert_text(text: bytes, name: str) -> Stream:
    problems: list[str] = []
    bodies = [one.body for one in objects(name, text, problems)]
    if problems:
        hint = _TEMPLATES if b"{{" in text else ""
        raise ManifestError("the manifest cannot be read:", problems, hint=hint)
    found = [convert(one) if tfjob.is_tfjob(one) else one for one in bodies]
    conversions = tuple(one for one in found if isinstance(one, Conversion))
    return Stream(tuple(one.cluster if isinstance(one, Conversion) else one for one in found), conversions)
