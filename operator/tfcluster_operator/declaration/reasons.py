"""Every reason that a condition or an event can carry, with what it means to the user.

A reason is CamelCase, short and stable: scripts and alerts match on it.  What to do about each is
in docs/reference/conditions.md.
"""

from __future__ import annotations

from typing import Final

# --- why the cluster is (not) Ready
#: Every declared task has a ready pod, or has ended with exit code 0; an evaluator does not count.
ALL_TASKS_READY: Final = "AllTasksReady"
#: Pods exist but some are not ready yet; the message names the most important cause.
TASKS_NOT_READY: Final = "TasksNotReady"
#: spec.suspend is true, so the pods are deleted.
SUSPENDED: Final = "Suspended"
#: The spec breaks a rule that the CRD's validation should have rejected (an old CRD is installed, for example).
INVALID_SPEC: Final = "InvalidSpec"
#: A view would not fit into a ConfigMap; the message gives the size.
VIEW_TOO_LARGE: Final = "ViewTooLarge"
#: The TF_CONFIG of a task would not fit into an environment variable; the message gives the size.
TF_CONFIG_TOO_LARGE: Final = "TFConfigTooLarge"
#: The API server rejected an object: quota, Pod Security, an unknown volume.  The message is the server's.
REJECTED: Final = "Rejected"
#: The API server failed at a request: a webhook that is down, an overload.  The message is the server's.
REQUEST_FAILED: Final = "RequestFailed"
#: An object with the name of the resolver's ConfigMap has other content, which would run in every pod that mounts it.
RESOLVER_UNTRUSTED: Final = "ResolverUntrusted"
#: An object is corrected repeatedly because another writer reverts it.
CONFLICTING_WRITES: Final = "ConflictingWrites"
#: The TFCluster is being deleted, and a finalizer keeps it: its objects are not created or repaired.
DELETING: Final = "Deleting"
#: A task failed, and its next try waits for the back-off.
BACKING_OFF: Final = "BackingOff"
#: A pod whose name is needed does not terminate: its node might be dead.
STUCK_TERMINATING: Final = "StuckTerminating"
#: A job waits until the jobs of its startAfter are ready.
WAITING_FOR_JOB: Final = "WaitingForJob"
#: The tasks of a gang wait until there is room for all of them; the message is the scheduler's.
WAITING_FOR_GANG: Final = "WaitingForGang"
#: spec.scheduling.gang needs an API that the server does not have, so pods of the gang are not created.
GANG_UNAVAILABLE: Final = "GangUnavailable"
#: A gang was not scheduled within its timeoutSeconds: the cluster has failed, or is suspended until an edit.
GANG_TIMEOUT: Final = "GangTimeout"
#: The cluster, or what an edit added to it, waits in its queue until there is quota; the message is Kueue's.
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
#: The cluster names a queue, and Kueue or the permission to read its objects is missing.
QUEUE_UNAVAILABLE: Final = "QueueUnavailable"
#: A pod of a deleted TFCluster of the same name still terminates; its name is free when it is deleted.
WAITING_FOR_PREDECESSOR: Final = "WaitingForPredecessor"
#: The cluster has succeeded: every task that decides has ended with exit code 0.
SUCCEEDED: Final = "Succeeded"

# --- whether spec.suspend holds
#: spec.suspend is false.
NOT_SUSPENDED: Final = "NotSuspended"

# --- whether the cluster has succeeded or failed, which is final
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

# --- whether every running pod was notified of its view
#: The ConfigMaps hold the current views and every running pod was touched since.
PUBLISHED: Final = "Published"
#: A view changed, and some running pods were not notified yet.
PUBLISHING: Final = "Publishing"

# --- whether every pod has the newest template
#: Every pod has the newest template.
ALL_CURRENT: Final = "AllCurrent"
#: Pods of an older template are being replaced.
ROLLING_OUT: Final = "RollingOut"
#: A pod of the newest template does not become ready, so the rolling update stops.
ROLLOUT_STALLED: Final = "RolloutStalled"
#: Pods of an older template stay until they are deleted: updateStrategy is OnDelete.
WAITING_FOR_DELETE: Final = "WaitingForDelete"

# --- whether the cluster is stuck for good (kstatus)
#: The cluster can still become ready or finish.
NOT_STALLED: Final = "NotStalled"

# --- whether a name that the cluster needs is available
#: No other object has a name that the cluster needs.
NO_CONFLICT: Final = "NoConflict"
#: An object that this TFCluster does not control has a name that it needs; it is not changed.
NAME_TAKEN: Final = "NameTaken"

# --- why an object is written or deleted (events)
#: The object did not exist.
CREATED: Final = "Created"
#: Another client edited the object; the edit is reverted.
REPAIRED: Final = "Repaired"
#: Membership, filters or accelerators changed: the view is rewritten.
VIEW_CHANGED: Final = "ViewChanged"
#: Only the list of leaving tasks, or the pod of a task, changed in the view: it is rewritten.
VIEW_REFRESHED: Final = "ViewRefreshed"
#: The clients that can reach the tasks changed: the NetworkPolicy is rewritten.
ISOLATION_CHANGED: Final = "IsolationChanged"
#: The minimum number of available tasks changed: the PodDisruptionBudget is rewritten.
BUDGET_CHANGED: Final = "BudgetChanged"
#: The tasks of the gang changed: the PodGroup is rewritten, or a pod without a node is replaced.
GANG_CHANGED: Final = "GangChanged"
#: The queue withdrew the quota, or did not grant it: pods are deleted, or not created.
QUOTA_WITHDRAWN: Final = "QuotaWithdrawn"
#: The cluster's request for quota changed, or quota is released: the Workload is rewritten.
QUOTA_REQUEST_CHANGED: Final = "QuotaRequestChanged"
#: The tasks of a Workload became ready, or are not ready anymore: this is reported to Kueue.
READINESS_REPORTED: Final = "ReadinessReported"
#: The index is no longer declared.
SCALED_DOWN: Final = "ScaledDown"
#: The index is no longer declared, and its pod stays for drainTimeoutSeconds.
DRAINING: Final = "Draining"
#: The job is no longer declared.
JOB_REMOVED: Final = "JobRemoved"
#: The job's template, port or the cluster domain changed.
TEMPLATE_CHANGED: Final = "TemplateChanged"
#: The pod was evicted, preempted, deleted, or its node was lost: it is replaced and not counted as a failure.
POD_DISRUPTED: Final = "PodDisrupted"
#: The pod failed by itself and is replaced.
POD_FAILED: Final = "PodFailed"
#: The pod failed and is kept for its log: failedPodsHistoryLimit.
POD_KEPT: Final = "FailedPodKept"
#: A kept failed pod is deleted: there are newer ones, or a quota is full.
HISTORY_LIMIT: Final = "FailedPodsHistoryLimit"
#: The task ended with exit code 0 and its job's restartPolicy is Always.
POD_ENDED: Final = "PodEnded"
#: A task failed and its restartScope replaces all pods of the job or of the cluster.
RESTARTED_TOGETHER: Final = "RestartedTogether"
#: The cluster has finished and cleanPodPolicy names the pod.
CLEANED_UP: Final = "CleanedUp"
#: The pod was stuck for forceDeleteAfterSeconds and is deleted without waiting for its node.
FORCED: Final = "ForcedDeletion"
#: ttlSecondsAfterFinished is over.
TTL_EXPIRED: Final = "TTLExpired"
#: The object cannot be changed in place (immutable ConfigMap, wrong kind of Service): it is deleted and re-created.
RECREATED: Final = "Recreated"
#: The object is no longer needed: a resolver ConfigMap that no pod mounts, a NetworkPolicy or PodDisruptionBudget that
#: is not declared or whose cluster has finished, a PodGroup of an earlier start.
UNUSED: Final = "Unused"
