"""Every reason that a condition or an event can carry: CamelCase, short and stable, because scripts match on it.

docs/reference/conditions.md has the meaning of each, and what to do.
"""

from typing import Final

# --- why the cluster is (not) Ready
ALL_TASKS_READY: Final = "AllTasksReady"
TASKS_NOT_READY: Final = "TasksNotReady"
SUSPENDED: Final = "Suspended"
INVALID_SPEC: Final = "InvalidSpec"
VIEW_TOO_LARGE: Final = "ViewTooLarge"
REJECTED: Final = "Rejected"
REQUEST_FAILED: Final = "RequestFailed"
RESOLVER_UNTRUSTED: Final = "ResolverUntrusted"
CONFLICTING_WRITES: Final = "ConflictingWrites"
DELETING: Final = "Deleting"
BACKING_OFF: Final = "BackingOff"
STUCK_TERMINATING: Final = "StuckTerminating"
WAITING_FOR_JOB: Final = "WaitingForJob"
WAITING_FOR_GANG: Final = "WaitingForGang"
GANG_UNAVAILABLE: Final = "GangUnavailable"
GANG_TIMEOUT: Final = "GangTimeout"
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
QUEUE_UNAVAILABLE: Final = "QueueUnavailable"
WAITING_FOR_PREDECESSOR: Final = "WaitingForPredecessor"
SUCCEEDED: Final = "Succeeded"

# --- whether spec.suspend holds
NOT_SUSPENDED: Final = "NotSuspended"

# --- whether the cluster has succeeded or failed, which is final
TASKS_SUCCEEDED: Final = "TasksSucceeded"
TASK_FAILED: Final = "TaskFailed"
PERMANENT_EXIT_CODE: Final = "PermanentExitCode"
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
NOT_FINISHED: Final = "NotFinished"
FINISHED: Final = "Finished"

# --- whether every running pod was notified of its view
PUBLISHED: Final = "Published"
PUBLISHING: Final = "Publishing"

# --- whether every pod has the newest template
ALL_CURRENT: Final = "AllCurrent"
ROLLING_OUT: Final = "RollingOut"
ROLLOUT_STALLED: Final = "RolloutStalled"
WAITING_FOR_DELETE: Final = "WaitingForDelete"

# --- whether the cluster is stuck for good (kstatus)
NOT_STALLED: Final = "NotStalled"

# --- whether a name that the cluster needs is available
NO_CONFLICT: Final = "NoConflict"
NAME_TAKEN: Final = "NameTaken"

# --- why an object is written or deleted (events)
CREATED: Final = "Created"
REPAIRED: Final = "Repaired"
VIEW_CHANGED: Final = "ViewChanged"
VIEW_REFRESHED: Final = "ViewRefreshed"
ISOLATION_CHANGED: Final = "IsolationChanged"
BUDGET_CHANGED: Final = "BudgetChanged"
GANG_CHANGED: Final = "GangChanged"
QUOTA_WITHDRAWN: Final = "QuotaWithdrawn"
QUOTA_REQUEST_CHANGED: Final = "QuotaRequestChanged"
READINESS_REPORTED: Final = "ReadinessReported"
SCALED_DOWN: Final = "ScaledDown"
DRAINING: Final = "Draining"
JOB_REMOVED: Final = "JobRemoved"
TEMPLATE_CHANGED: Final = "TemplateChanged"
POD_DISRUPTED: Final = "PodDisrupted"
POD_FAILED: Final = "PodFailed"
POD_KEPT: Final = "FailedPodKept"
HISTORY_LIMIT: Final = "FailedPodsHistoryLimit"
POD_ENDED: Final = "PodEnded"
RESTARTED_TOGETHER: Final = "RestartedTogether"
CLEANED_UP: Final = "CleanedUp"
FORCED: Final = "ForcedDeletion"
TTL_EXPIRED: Final = "TTLExpired"
RECREATED: Final = "Recreated"
UNUSED: Final = "Unused"
