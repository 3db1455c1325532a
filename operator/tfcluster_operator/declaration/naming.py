"""Names, labels and addresses: the only place that formats them.

Names are deterministic, so that a second create of the same task is distinguished by the API server (AlreadyExists),
and addresses are DNS names, never pod IPs: a worker that returns at the same address re-joins a running TensorFlow
program by itself, at another address never.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

GROUP: Final = "tfcluster.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TFCluster"
PLURAL: Final = "tfclusters"

#: The field manager and event source that our writes carry.
FIELD_MANAGER: Final = "tfcluster-operator"
#: What spec.managedBy says of a TFCluster that is ours; left out means the same.
CONTROLLER: Final = f"{GROUP}/{FIELD_MANAGER}"

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
#: The TFCluster's name, "" on what serves a whole namespace; every object of ours carries it, and our watches select
#: by it.
LABEL_CLUSTER: Final = f"{GROUP}/cluster"
#: The job as TensorFlow spells it.
LABEL_JOB: Final = f"{GROUP}/job"
#: The task's index in its job.
LABEL_TASK_INDEX: Final = f"{GROUP}/task-index"
#: Marks a failed pod that is kept for its log: it is its task's no longer.
LABEL_KEPT: Final = f"{GROUP}/kept"

#: Which tasks the pod shares a topology domain with: all whose pods have the same value.
LABEL_COLOCATED: Final = f"{GROUP}/colocated"

#: What the pod was last told of its view, a digest; patching it makes the kubelet refresh the mount at once.
ANNOTATION_VIEW: Final = f"{GROUP}/view"
#: What the pod was created from; when it differs from the spec's, the pod is replaced.
ANNOTATION_TEMPLATE_HASH: Final = f"{GROUP}/template-hash"
#: How often the task's pod failed in a row before this one; the delay before the next replacement grows with it.
ANNOTATION_ATTEMPT: Final = f"{GROUP}/attempt"
#: On a pod of a cluster with a gang: the scheduler that the operator chose for it; admission might have put in another.
ANNOTATION_SCHEDULER: Final = f"{GROUP}/scheduler"
#: On a pod in place of a lost one: how many lost pods of its job were counted by then, that one among them.
ANNOTATION_REPLACEMENT: Final = f"{GROUP}/replacement"
#: The container whose end is the task's end, as the template has it: others can put theirs before it.
ANNOTATION_MAIN_CONTAINER: Final = f"{GROUP}/main-container"
#: How often the job had been restarted as a whole when the pod was created; a pod of an earlier number is replaced.
ANNOTATION_INCARNATION: Final = f"{GROUP}/incarnation"
#: When a pod that is no longer declared was first found to be surplus, in seconds since the epoch: it can drain.
ANNOTATION_SURPLUS_SINCE: Final = f"{GROUP}/surplus-since"
#: The epoch of a ConfigMap's files, as {file: epoch} in JSON: a file edited by hand cannot fake it.
ANNOTATION_EPOCHS: Final = f"{GROUP}/epochs"

#: What a Workload was created from: the digest of what a pod of each podSet asks for, as {podSet: digest} in JSON.
ANNOTATION_ASKS: Final = f"{GROUP}/asks"

#: The PriorityClass that we wrote into a PodGroup; Kubernetes writes its default where we write none.
ANNOTATION_PRIORITY: Final = f"{GROUP}/priority-class"

#: That the pods of a PodGroup had their places, where its scheduler does not report that forever.
ANNOTATION_PLACED: Final = f"{GROUP}/placed"

#: When a Workload without quota was written last, in seconds since the epoch: see plan/claims.py.
ANNOTATION_ASKED_AT: Final = f"{GROUP}/asked-at"

#: Kueue's labels: of the LocalQueue that an object waits in, and of its WorkloadPriorityClass.
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY: Final = "kueue.x-k8s.io/priority-class"

#: The volumes that the operator adds to each pod: its view, and the resolver where that is delivered.
VIEW_VOLUME: Final = "tfcluster-view"
RESOLVER_VOLUME: Final = "tfcluster-resolver"
#: The only file of a copy of the resolver.
ARCHIVE_FILE: Final = "tfcluster_resolver.zip"


def service_name(cluster: str) -> str:
    """Return the name of the headless Service of a cluster."""
    return cluster


def view_name(cluster: str, job: str) -> str:
    """Return the name of the ConfigMap with the views of one job's tasks."""
    return f"{cluster}-{dns_job(job)}"


def budget_name(cluster: str, job: str) -> str:
    """Return the name of the PodDisruptionBudget of one job's tasks."""
    return f"{cluster}-{dns_job(job)}"


#: The most characters of a label's value.
_LONGEST_LABEL: Final = 63


def gang_name(cluster: str, round_of: int, job: str = "") -> str:
    """Return the name of the PodGroup of the tasks that start together, in this round of starts.

    No name of a cluster or of a job has a dot, and no job's begins with a digit, so that no two are one.  A name that
    could be no label's value ends with its digest.
    """
    name = ".".join([cluster, *([dns_job(job)] if job else []), str(round_of)])
    if len(name) <= _LONGEST_LABEL:
        return name
    # With scheduler-plugins it is the value of a label, and the name of a pod might be as long without a round.
    return f"{name[: _LONGEST_LABEL - 1 - len(digest(name))]}.{digest(name)}"


def claim_name(cluster: str, number: int) -> str:
    """Return the name of a Workload by which a cluster asks its queue for quota, from 0 up.

    Kueue has the Workloads of all kinds of jobs beside each other, so the kind is in the name.
    """
    return f"{_OF_A_CLAIM}{cluster}.{number}"


def claim_number(name: str) -> int:
    """Return the number of a Workload; -1 where it is not named as one of ours."""
    number = name.rpartition(".")[2]
    named = name.startswith(_OF_A_CLAIM) and number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER
    return int(number) if named else -1


_OF_A_CLAIM: Final = "tfcluster-"


def policy_name(cluster: str, job: str = "", index: int | None = None) -> str:
    """Name a NetworkPolicy: of the whole cluster, of a job, or of the tasks of a job of which this is the first.

    No name of a cluster or of a job has a dot, so that no two are one.
    """
    return ".".join([cluster, *([dns_job(job)] if job else []), *([] if index is None else [str(index)])])


def guests_policy_name(cluster: str) -> str:
    """Return the name of the NetworkPolicy that lets in who is no task; no job's name begins with a digit."""
    return f"{cluster}.0.allow-from"


def pod_name(cluster: str, job: str, index: int) -> str:
    """Return the name of the first pod of one task; it is also the hostname of every pod of it."""
    return f"{cluster}-{dns_job(job)}-{index}"


# A pass over thousands of tasks asks for them several times; few are kept, because 10,000 take a megabyte.
@lru_cache(maxsize=64)
def first_pod_names(cluster: str, job: str, replicas: int) -> tuple[str, ...]:
    """Return the name of the first pod of each task of a job, in the order of the indices."""
    return tuple(pod_name(cluster, job, index) for index in range(replicas))


def later_pod_name(first: str, number: int) -> str:
    """Name a later pod of a task whose failed pods are kept, from 1 up; it is the first pod that has the number 0."""
    return f"{first}{_LATER}{number}" if number else first


def first_pod_name(name: str) -> tuple[str, int]:
    """Return the name of a task's first pod and the number of this one, 0 of the first.

    No task's first pod has a name that could be taken for a later one's: it ends with a hyphen and the index.
    """
    first, found, number = name.rpartition(_LATER)
    is_number = number.isascii() and number.isdecimal() and number[0] != "0" and len(number) <= _LONGEST_NUMBER
    return (first, int(number)) if found and is_number else (name, 0)


def index_of(pod: str) -> int:
    """Return the index of the task whose pod has this name; 0 where the name is none of ours."""
    index = first_pod_name(pod)[0].rpartition("-")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= _LONGEST_NUMBER else 0


_LATER: Final = "-r"
_LONGEST_NUMBER: Final = 9


def resolver_name(digest: str) -> str:
    """Return the name of the ConfigMap that delivers the resolver to all pods of a namespace.

    The name proves the content: nobody can make another archive with the same first 32 digits.
    """
    return f"{_OF_THE_RESOLVER}{digest[:_PROVING]}"


def is_of_the_resolver(config_map: str) -> bool:
    """Return whether a ConfigMap of this name should hold a copy of the resolver for all pods of its namespace."""
    return config_map.startswith(_OF_THE_RESOLVER)


_OF_THE_RESOLVER: Final = "tfcluster-resolver-"
_PROVING: Final = 32


@lru_cache(maxsize=1024)
def dns_job(job: str) -> str:
    """Spell a job for DNS: TensorFlow allows no hyphen in a job's name, Kubernetes allows no underscore."""
    return job.replace("_", "-")


def address(*, cluster: str, namespace: str, job: str, index: int, port: int, cluster_domain: str) -> str:
    """Return the "host:port" at which a task is reached, whatever pod runs it.

    Args:
        cluster: the TFCluster's name.
        namespace: its namespace.
        job: the job as TensorFlow spells it.
        index: the task's index.
        port: the job's TCP port.
        cluster_domain: the DNS domain of the Kubernetes cluster, or "" to leave it to the pod's search path.

    Returns:
        The address, by the rules of "DNS for Services and Pods" (hostname.subdomain.namespace.svc).
    """
    domain = f".{cluster_domain}" if cluster_domain else ""
    return f"{pod_name(cluster, job, index)}.{service_name(cluster)}.{namespace}.svc{domain}:{port}"


def cluster_labels(cluster: str) -> dict[str, str]:
    """Label an object of the whole cluster, by Kubernetes' recommended labels and our own."""
    return {
        "app.kubernetes.io/name": "tfcluster",
        "app.kubernetes.io/instance": cluster,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_CLUSTER: cluster,
    }


def resolver_labels() -> dict[str, str]:
    """Label a copy of the resolver: our watch finds it, and whoever asks for one cluster's objects does not."""
    return {
        "app.kubernetes.io/name": "tfcluster",
        "app.kubernetes.io/component": "resolver",
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_CLUSTER: "",
    }


def job_labels(cluster: str, job: str) -> dict[str, str]:
    """Label an object of one job."""
    return {**cluster_labels(cluster), "app.kubernetes.io/component": job, LABEL_JOB: job}


def task_labels(cluster: str, job: str, index: int) -> dict[str, str]:
    """Label the pod of one task."""
    return {**job_labels(cluster, job), LABEL_TASK_INDEX: str(index)}


def job_selector(cluster: str, job: str) -> str:
    """Return the label selector of a job's pods, as /scale reports it to an autoscaler."""
    return f"{LABEL_CLUSTER}={cluster},{LABEL_JOB}={job}"


def digest(text: str) -> str:
    """Shorten a text to 16 characters, to tell whether another is the same."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
