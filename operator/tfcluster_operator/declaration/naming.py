"""Names, labels and addresses: the only place that formats them.

Names are deterministic, so that the API server rejects a second create of the same task (AlreadyExists), and addresses
are DNS names, never pod IPs: a worker that returns at the same address re-joins a running TensorFlow program by itself,
at another address it does not.
"""

import hashlib
from functools import lru_cache
from typing import Final

GROUP: Final = "tfcluster.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TFCluster"
PLURAL: Final = "tfclusters"

#: The field manager and event source of our writes.
FIELD_MANAGER: Final = "tfcluster-operator"
#: The spec.managedBy of our TFClusters; an empty one means the same.
CONTROLLER: Final = f"{GROUP}/{FIELD_MANAGER}"

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
#: The TFCluster's name, "" on objects for a whole namespace; all our objects have it, and our watches select by it.
LABEL_CLUSTER: Final = f"{GROUP}/cluster"
#: The job with its TensorFlow name.
LABEL_JOB: Final = f"{GROUP}/job"
#: The task's index in its job.
LABEL_TASK_INDEX: Final = f"{GROUP}/task-index"
#: Marks a failed pod that is kept for its log: it is no longer its task's pod.
LABEL_KEPT: Final = f"{GROUP}/kept"

#: The topology domain that the pod's task shares with others: all whose pods have the same value.
LABEL_COLOCATED: Final = f"{GROUP}/colocated"

#: The digest of the view that the pod was last notified of; a patch makes the kubelet refresh the mount immediately.
ANNOTATION_VIEW: Final = f"{GROUP}/view"
#: The hash of the template of the pod; if it differs from the spec's, the pod is replaced.
ANNOTATION_TEMPLATE_HASH: Final = f"{GROUP}/template-hash"
#: How often the task's pod failed in a row before this one; the back-off before the next replacement grows with it.
ANNOTATION_ATTEMPT: Final = f"{GROUP}/attempt"
#: On a pod of a cluster with a gang: the scheduler that the operator chose for it; a webhook might have changed it.
ANNOTATION_SCHEDULER: Final = f"{GROUP}/scheduler"
#: On a pod that is not the first one of its task: the chief reconnects to the task.
ANNOTATION_REPLACEMENT: Final = f"{GROUP}/replacement"
#: The container whose end is the task's end, according to the template: webhooks can add theirs before it.
ANNOTATION_MAIN_CONTAINER: Final = f"{GROUP}/main-container"
#: How often the job had been restarted as a whole when the pod was created; a pod of an earlier number is replaced.
ANNOTATION_INCARNATION: Final = f"{GROUP}/incarnation"
#: When a pod that is no longer declared was first found to be surplus, in seconds since the epoch: it can drain.
ANNOTATION_SURPLUS_SINCE: Final = f"{GROUP}/surplus-since"
#: The epoch of a ConfigMap's files, as {file: epoch} in JSON: a file edited by hand cannot fake it.
ANNOTATION_EPOCHS: Final = f"{GROUP}/epochs"

#: The digest of the requests of each podSet's pods in a Workload, as {podSet: digest} in JSON.
ANNOTATION_ASKS: Final = f"{GROUP}/asks"

#: The PriorityClass that the operator set on a PodGroup; Kubernetes sets its default if this is empty.
ANNOTATION_PRIORITY: Final = f"{GROUP}/priority-class"

#: The pods of a PodGroup were scheduled; for schedulers that do not report this forever.
ANNOTATION_PLACED: Final = f"{GROUP}/placed"

#: When a Workload without quota was written last, in seconds since the epoch: see plan/claims.py.
ANNOTATION_ASKED_AT: Final = f"{GROUP}/asked-at"

#: Kueue's labels: of the LocalQueue that an object waits in, and of its WorkloadPriorityClass.
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY: Final = "kueue.x-k8s.io/priority-class"

#: The volumes that the operator adds to each pod: its view, and the resolver where that is delivered.
VIEW_VOLUME: Final = "tfcluster-view"
RESOLVER_VOLUME: Final = "tfcluster-resolver"
#: The only file of a resolver ConfigMap.
ARCHIVE_FILE: Final = "tfcluster_resolver.zip"


def view_name(cluster: str, job: str) -> str:
    """Return the name of the ConfigMap with the views of one job's tasks."""
    return f"{cluster}-{dns_job(job)}"


#: The most characters of a label's value.
_LONGEST_LABEL: Final = 63


def gang_name(cluster: str, round_of: int, job: str = "") -> str:
    """Return the name of the PodGroup of the tasks that start together, in this round of starts."""
    # Names of clusters and jobs do not contain a dot, and a job's does not begin with a digit, so the result is unique.
    name = ".".join([cluster, *([dns_job(job)] if job else []), str(round_of)])
    if len(name) <= _LONGEST_LABEL:
        return name
    # With scheduler-plugins the name is a label's value; a pod's name can be as long without a round.
    return f"{name[: _LONGEST_LABEL - 1 - len(digest(name))]}.{digest(name)}"


def claim_name(cluster: str, number: int) -> str:
    """Return the name of a cluster's Workload of this number, from 0 up; all kinds share the namespace."""
    return f"{_OF_A_CLAIM}{cluster}.{number}"


def claim_number(name: str) -> int:
    """Return the number of a Workload; -1 if its name is not one of ours."""
    number = name.rpartition(".")[2]
    named = name.startswith(_OF_A_CLAIM) and number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER
    return int(number) if named else -1


_OF_A_CLAIM: Final = "tfcluster-"


def policy_name(cluster: str, job: str = "", index: int | None = None) -> str:
    """Return the name of a NetworkPolicy: of the whole cluster, of a job, or of a group of tasks by its first index."""
    return ".".join([cluster, *([dns_job(job)] if job else []), *([] if index is None else [str(index)])])


def guests_policy_name(cluster: str) -> str:
    """Return the name of the NetworkPolicy for other clients than tasks; a job's name cannot begin with a digit."""
    return f"{cluster}.0.allow-from"


def pod_name(cluster: str, job: str, index: int) -> str:
    """Return the name of the first pod of one task; it is also the hostname of every pod of it."""
    return f"{cluster}-{dns_job(job)}-{index}"


# A reconcile of thousands of tasks needs them several times; few are kept, because 10,000 names take a megabyte.
@lru_cache(maxsize=64)
def first_pod_names(cluster: str, job: str, replicas: int) -> tuple[str, ...]:
    """Return the name of the first pod of each task of a job, in the order of the indices."""
    return tuple(pod_name(cluster, job, index) for index in range(replicas))


def later_pod_name(first: str, number: int) -> str:
    """Return the name of a later pod of a task whose failed pods are kept, from 1 up; number 0 is the first pod."""
    return f"{first}{_LATER}{number}" if number else first


def first_pod_name(name: str) -> tuple[str, int]:
    """Return the name of a task's first pod and the number of this one, 0 for the first."""
    first, found, number = name.rpartition(_LATER)
    is_number = number.isascii() and number.isdecimal() and number[0] != "0" and len(number) <= _LONGEST_NUMBER
    return (first, int(number)) if found and is_number else (name, 0)


def index_of(pod: str) -> int:
    """Return the index of the task whose pod has this name; 0 if the name is not one of ours."""
    index = first_pod_name(pod)[0].rpartition("-")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= _LONGEST_NUMBER else 0


_LATER: Final = "-r"
_LONGEST_NUMBER: Final = 9


def resolver_name(digest: str) -> str:
    """Return the name of a namespace's resolver ConfigMap, which proves the content."""
    return f"{_OF_THE_RESOLVER}{digest[:_PROVING]}"


def is_of_the_resolver(config_map: str) -> bool:
    """Return whether a ConfigMap has the name of a resolver ConfigMap for all pods of its namespace."""
    return config_map.startswith(_OF_THE_RESOLVER)


_OF_THE_RESOLVER: Final = "tfcluster-resolver-"
_PROVING: Final = 32


@lru_cache(maxsize=1024)
def dns_job(job: str) -> str:
    """Convert a job's name for DNS: TensorFlow does not allow hyphens in it, Kubernetes does not allow underscores."""
    return job.replace("_", "-")


def address(*, cluster: str, namespace: str, job: str, index: int, port: int, cluster_domain: str) -> str:
    """Return the "host:port" of a task, which does not depend on its pod ("DNS for Services and Pods")."""
    domain = f".{cluster_domain}" if cluster_domain else ""
    return f"{pod_name(cluster, job, index)}.{cluster}.{namespace}.svc{domain}:{port}"


def cluster_labels(cluster: str) -> dict[str, str]:
    """Return the labels of an object of the whole cluster: Kubernetes' recommended labels and our own."""
    return {
        "app.kubernetes.io/name": "tfcluster",
        "app.kubernetes.io/instance": cluster,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_CLUSTER: cluster,
    }


def resolver_labels() -> dict[str, str]:
    """Return the labels of a resolver ConfigMap: our watch selects it, a search for one cluster's objects does not."""
    return {
        "app.kubernetes.io/name": "tfcluster",
        "app.kubernetes.io/component": "resolver",
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_CLUSTER: "",
    }


def job_labels(cluster: str, job: str) -> dict[str, str]:
    """Return the labels of an object of one job."""
    return {**cluster_labels(cluster), "app.kubernetes.io/component": job, LABEL_JOB: job}


def task_labels(cluster: str, job: str, index: int) -> dict[str, str]:
    """Return the labels of the pod of one task."""
    return {**job_labels(cluster, job), LABEL_TASK_INDEX: str(index)}


def job_selector(cluster: str, job: str) -> str:
    """Return the label selector of a job's pods, as /scale reports it to an autoscaler."""
    return f"{LABEL_CLUSTER}={cluster},{LABEL_JOB}={job}"


def digest(text: str) -> str:
    """Return a digest of 16 characters, to compare texts."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
