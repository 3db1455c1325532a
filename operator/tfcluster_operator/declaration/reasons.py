"""Every reason that a condition or an event can carry, with what it means to the user.

A reason is CamelCase, short and stable: scripts and alerts match on it.  What to do about each is
in docs/reference/conditions.md.
"""

from __future__ import annotations

from typing import Final

# --- why the cluster is (not) Ready
#: Every declared task has a ready pod, or has ended with exit code 0; an evaluator does not count.
ALL_TASKS_READY: Final = "AllTasksReady"
#: Pods exist but some are not ready yet; the message names the most telling cause.
TASKS_NOT_READY: Final = "TasksNotReady"
#: spec.suspend is true: there are no pods.
SUSPENDED: Final = "Suspended"
#: The spec breaks a rule that the CRD's validation should have rejected (an old CRD is installed, say).
INVALID_SPEC: Final = "InvalidSpec"
#: A view would not fit into a ConfigMap; the message gives the size.
VIEW_TOO_LARGE: Final = "ViewTooLarge"
#: The TF_CONFIG of a task would not fit into an environment variable; the message gives the size.
TF_CONFIG_TOO_LARGE: Final = "TFConfigTooLarge"
#: The API server rejected an object: quota, Pod Security, an unknown volume.  The message is the server's.
REJECTED: Final = "Rejected"
#: The API server failed at a request: a webhook that is down, an overload.  The message is the server's.
REQUEST_FAILED: Final = "RequestFailed"
#: Another object than our copy of the resolver has the name of it: what it holds would run in every pod that mounts it.
RESOLVER_UNTRUSTED: Final = "ResolverUntrusted"
#: Something of ours is corrected again and again because another writer undoes it.
CONFLICTING_WRITES: Final = "ConflictingWrites"
#: The TFCluster is being deleted, and a finalizer keeps it for now: nothing is created or repaired any more.
DELETING: Final = "Deleting"
#: A task failed and its next try waits for its pause.
BACKING_OFF: Final = "BackingOff"
#: A pod should be deleted and is not, and its name is needed: its node might be dead.
STUCK_TERMINATING: Final = "StuckTerminating"
#: A job waits until the jobs of its startAfter are ready.
WAITING_FOR_JOB: Final = "WaitingForJob"
#: The tasks of a gang wait until there is room for all of them at once; the message has the scheduler's words.
WAITING_FOR_GANG: Final = "WaitingForGang"
#: spec.scheduling.gang asks for what the API server does not offer, so that no pod of the gang is created.
GANG_UNAVAILABLE: Final = "GangUnavailable"
#: A gang had no places within its timeoutSeconds: the cluster has failed, or has no pods until an edit.
GANG_TIMEOUT: Final = "GangTimeout"
#: The cluster, or what an edit added to it, waits in its queue until there is quota; the message has Kueue's words.
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
#: The cluster names a queue, and what it needs for it is not there or cannot be read.
QUEUE_UNAVAILABLE: Final = "QueueUnavailable"
#: A pod of a deleted TFCluster of the same name still terminates; its name is free when it is deleted.
WAITING_FOR_PREDECESSOR: Final = "WaitingForPredecessor"
#: The cluster has succeeded: every task that had to has ended with exit code 0.
SUCCEEDED: Final = "Succeeded"

# --- whether spec.suspend holds
#: spec.suspend is false.
NOT_SUSPENDED: Final = "NotSuspended"

# --- whether the cluster has succeeded or failed, for ever
#: The tasks that spec.successPolicy names ended with exit code 0.
TASKS_SUCCEEDED: Final = "TasksSucceeded"
#: A task failed and its job's restartPolicy is Never.
TASK_FAILED: Final = "TaskFailed"
#: A task ended with an exit code from 1 to 127 and its job's restartPolicy is ExitCode.
PERMANENT_EXIT_CODE: Final = "PermanentExitCode"
#: A task failed after spec.backoffLimit restarts.
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
#: The cluster was not finished within spec.activeDeadlineSeconds.
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
#: The cluster has not finished.
NOT_FINISHED: Final = "NotFinished"
#: The cluster has finished the other way.
FINISHED: Final = "Finished"

# --- whether every running pod was told of its view
#: The ConfigMaps hold the current views and every running pod was touched since.
PUBLISHED: Final = "Published"
#: A view changed and some running pods were not told yet.
PUBLISHING: Final = "Publishing"

# --- whether every pod is made from the present template
#: Every pod is.
ALL_CURRENT: Final = "AllCurrent"
#: Pods of an older template are being replaced.
ROLLING_OUT: Final = "RollingOut"
#: A pod of the present template does not become ready, so that the rolling update goes no further.
ROLLOUT_STALLED: Final = "RolloutStalled"
#: Pods of an older template stay until somebody deletes them: updateStrategy is OnDelete.
WAITING_FOR_DELETE: Final = "WaitingForDelete"

# --- whether the cluster is stuck for good (kstatus)
#: The cluster might still become what it should be.
NOT_STALLED: Final = "NotStalled"

# --- whether a name we need is taken
#: Every object of our names is ours, or absent.
NO_CONFLICT: Final = "NoConflict"
#: An object of a name we need exists and this TFCluster does not control it; it is left alone.
NAME_TAKEN: Final = "NameTaken"

# --- why an object is written or deleted (events)
#: The object did not exist.
CREATED: Final = "Created"
#: The object was edited behind our back and is corrected.
REPAIRED: Final = "Repaired"
#: Membership, filters or accelerators changed: the view is rewritten.
VIEW_CHANGED: Final = "ViewChanged"
#: Tasks that left are deleted, or a task is another pod, and nothing else changed in the view: it is rewritten.
VIEW_REFRESHED: Final = "ViewRefreshed"
#: Who reaches the tasks changed: the NetworkPolicy is rewritten.
ISOLATION_CHANGED: Final = "IsolationChanged"
#: How many tasks an eviction must leave running changed: the PodDisruptionBudget is rewritten.
BUDGET_CHANGED: Final = "BudgetChanged"
#: Which tasks get their places together changed: the PodGroup is rewritten, or a pod that has no node yet is replaced.
GANG_CHANGED: Final = "GangChanged"
#: The queue took the quota back, or never gave it: pods go, or do not come.
QUOTA_WITHDRAWN: Final = "QuotaWithdrawn"
#: What the cluster asks its queue for changed, or quota is given back: the Workload is rewritten.
QUOTA_REQUEST_CHANGED: Final = "QuotaRequestChanged"
#: The tasks that a Workload stands for are all ready, or are so no more: Kueue is told.
READINESS_REPORTED: Final = "ReadinessReported"
#: The index is no longer declared.
SCALED_DOWN: Final = "ScaledDown"
#: The index is no longer declared, and its pod stays for drainTimeoutSeconds.
DRAINING: Final = "Draining"
#: The job is no longer declared.
JOB_REMOVED: Final = "JobRemoved"
#: The job's template, port or the cluster domain changed.
TEMPLATE_CHANGED: Final = "TemplateChanged"
#: The pod was evicted, preempted, deleted by somebody, or its node was lost: it is replaced and counts as no failure.
POD_DISRUPTED: Final = "PodDisrupted"
#: The pod failed by itself and is replaced.
POD_FAILED: Final = "PodFailed"
#: The pod failed and is kept for its log: failedPodsHistoryLimit.
POD_KEPT: Final = "FailedPodKept"
#: A failed pod that was kept goes: there are newer ones, or a quota leaves no room for it.
HISTORY_LIMIT: Final = "FailedPodsHistoryLimit"
#: The task ended with exit code 0 and its job's restartPolicy is Always.
POD_ENDED: Final = "PodEnded"
#: A task failed and its restartScope replaces all pods of the job or of the cluster.
RESTARTED_TOGETHER: Final = "RestartedTogether"
#: The cluster has finished and cleanPodPolicy names the pod.
CLEANED_UP: Final = "CleanedUp"
#: The pod was stuck for forceDeleteAfterSeconds and is deleted without its node's word.
FORCED: Final = "ForcedDeletion"
#: ttlSecondsAfterFinished is over.
TTL_EXPIRED: Final = "TTLExpired"
#: The object cannot be changed in place (immutable ConfigMap, wrong kind of Service): it is deleted and created again.
RECREATED: Final = "Recreated"
#: No pod mounts this copy of the resolver any more, or the isolation needs this NetworkPolicy no more, or
#: nothing declares this PodDisruptionBudget any more, or the cluster it protected has finished, or this PodGroup is
#: of an earlier start.
UNUSED: Final = "Unused"
