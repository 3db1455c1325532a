"""A TFCluster `mnist` and its pods on the API server, and the output of `tfcluster status`."""

from support.manifests import tfcluster

from tfcluster.status.picture import picture_of
from tfcluster_operator.declaration.naming import digest

NOW = 1_800_000_000.0
CREATED = "2027-01-15T07:55:00Z"  # five minutes before NOW
VIEW = "what worker tasks see"
TOLD = digest(VIEW)
READY = ("Ready", "True", "AllTasksReady", "2 of 2 ready")


def cluster(jobs, *, conditions=(), status=None, metadata=None, **spec):
    builder = tfcluster("mnist").spec(**spec)
    for job, fields in jobs.items():
        builder.job(job, **fields)
    body = builder.build()
    given = {"namespace": "default", "uid": "uid-1", "generation": 1, "creationTimestamp": CREATED}
    body["metadata"] |= {**given, **(metadata or {})}
    said = [{"type": kind, "status": state, "reason": why, "message": words} for kind, state, why, words in conditions]
    body["status"] = {"observedGeneration": 1, "conditions": said, **(status or {})}
    return body


def pod(index, job="worker", *, phase="Running", ready=True, suffix="", labels=None, told=TOLD, metadata=None, **more):
    own = {"tfcluster.dev/cluster": "mnist", "tfcluster.dev/job": job, "tfcluster.dev/task-index": str(index)}
    return {
        "metadata": {
            "name": f"mnist-{job}-{index}{suffix}",
            "namespace": "default",
            "uid": f"uid-{job}-{index}{suffix}",
            "resourceVersion": "5",
            "creationTimestamp": CREATED,
            "labels": {**own, **(labels or {})},
            "annotations": {"tfcluster.dev/view": told},
            "ownerReferences": [{"kind": "TFCluster", "name": "mnist", "uid": "uid-1", "controller": True}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}],
            **(metadata or {}),
        },
        "spec": {"nodeName": f"node-{index % 2}", "containers": [{"name": "tensorflow"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}], **more},
    }


def waiting(reason, message):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "ready": False, "containerStatuses": [{"name": "tensorflow", "state": state}]}


def ended(code, reason="Error", message=""):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"phase": "Failed", "ready": False, "containerStatuses": [{"name": "tensorflow", "state": state}]}


def views(**files):
    return {"metadata": {"name": "mnist-worker"}, "data": files or {"cluster.json": VIEW}}


VIEWS = views()


def picture(*pods, worker=None, files=(VIEWS,), now=NOW, **body):
    """Return the output for a cluster whose job worker has one task per pod, or these fields."""
    jobs = {"worker": {"replicas": len(pods)} if worker is None else worker}
    return picture_of(cluster(jobs, **body), pods, files, now=now)
