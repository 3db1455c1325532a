"""Every reason that a condition or an event can carry, with what it means to the user.

A reason is CamelCase, short and stable: scripts and alerts match on it.
"""

from __future__ import annotations

from typing import Final

# --- why the cluster is (not) Ready
#: Every declared task has a ready pod, or a pod that has finished with exit code 0.
ALL_TASKS_READY: Final = "AllTasksReady"
#: Pods exist but some are not ready yet; the message names the most telling cause.
TASKS_NOT_READY: Final = "TasksNotReady"
#: spec.suspend is true: there are no pods, by the user's wish.
SUSPENDED: Final = "Suspended"
#: spec.suspend is false.
NOT_SUSPENDED: Final = "NotSuspended"
#: The spec breaks a rule that the CRD's validation should have refused (an old CRD is installed, say).
INVALID_SPEC: Final = "InvalidSpec"
#: A view would not fit into a ConfigMap; the message gives the size.
VIEW_TOO_LARGE: Final = "ViewTooLarge"
#: The API server refused an object: quota, Pod Security, an unknown volume.  The message is the server's.
REFUSED: Final = "Refused"
#: A pod failed and its replacement waits for its delay.
REPLACING_FAILED_POD: Final = "ReplacingFailedPod"
#: A pod of a deleted TFCluster of the same name still terminates; its name is free when it is gone.
WAITING_FOR_PREDECESSOR: Final = "WaitingForPredecessor"

# --- whether every running pod was told of its view
#: The ConfigMaps hold the current views and every running pod was touched since.
PUBLISHED: Final = "Published"
#: A view changed and some running pods were not told yet.
PUBLISHING: Final = "Publishing"

# --- whether a name we need is taken
#: Every object of our names is ours, or absent.
NO_CONFLICT: Final = "NoConflict"
#: An object of a name we need exists and this TFCluster does not control it; it is left alone.
NAME_TAKEN: Final = "NameTaken"

# --- why an object is written or deleted (events)
#: The object did not exist.
CREATED: Final = "Created"
#: The object was edited behind our back and is put right.
REPAIRED: Final = "Repaired"
#: Membership, filters or accelerators changed: the view is rewritten.
VIEW_CHANGED: Final = "ViewChanged"
#: The index is no longer declared.
SCALED_DOWN: Final = "ScaledDown"
#: The job is no longer declared.
JOB_REMOVED: Final = "JobRemoved"
#: The job's template, port or the cluster domain changed.
TEMPLATE_CHANGED: Final = "TemplateChanged"
#: A container's image of a running pod was edited.
POD_EDITED: Final = "PodEdited"
#: The pod was evicted, preempted or its node was shut down.
POD_DISRUPTED: Final = "PodDisrupted"
#: The pod failed by itself.
POD_FAILED: Final = "PodFailed"
#: The object cannot be changed in place (immutable ConfigMap, wrong kind of Service) and is made anew.
MADE_ANEW: Final = "MadeAnew"
