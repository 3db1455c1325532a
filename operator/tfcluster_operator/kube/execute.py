"""Carries out a plan: each action becomes a request, each rejection a finding.

The plan has the order of the actions, and what a rejection blocks.  The answer to a write is stored immediately.  After
a conflict (409, 404) the store is corrected, and the next reconcile continues from there.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgspec

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube import clusters
from tfcluster_operator.kube.client import (
    AlreadyExistsError,
    ApiError,
    Client,
    ConflictError,
    KubeError,
    NotFoundError,
    ServerError,
    UnreachableError,
)
from tfcluster_operator.kube.store import Name, Stores
from tfcluster_operator.life.roster import holder_of
from tfcluster_operator.objects.base import Child, Kind
from tfcluster_operator.objects.config_map import ConfigMap, ResolverArchive, build_copy
from tfcluster_operator.objects.workload import Workload
from tfcluster_operator.plan.actions import Action, Create, Delete, Finding, Gate, Group, Patch, Plan, Step, Try
from tfcluster_operator.plan.objects import obstacle, untrusted
from tfcluster_operator.plan.story import EXCEEDED_QUOTA

#: The server rejects unknown fields by name; if it dropped them silently, the pod would differ.
_WRITER: Final = {"fieldManager": naming.FIELD_MANAGER, "fieldValidation": "Strict"}
_AT_ONCE: Final = 32
#: Messages that say nothing about the template: a full quota, part of which the deleted pod frees, and a webhook that
#: does not support a dry run.
_NO_VERDICT: Final = (EXCEEDED_QUOTA, "does not support dry run")
#: Part of the server's message about a merge patch whose object has another UID.
_OF_THE_UID: Final = "metadata.uid: Invalid value"
_CLASSES: Final = {
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "WorkloadPriorityClass": "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
}


class _PriorityClass(msgspec.Struct):
    value: int = 0


@dataclass(slots=True)
class Outcome:
    """The result of a plan: what was carried out, and what was rejected, by the gate that the rejection closes."""

    cluster: TFCluster
    closed: set[Gate]
    done: list[Step] = field(default_factory=list)
    refused: dict[Gate, Finding] = field(default_factory=dict)
    #: Whether there was a conflict, so that the rest is planned again immediately.
    again: bool = False
    #: Set when the API server did not answer: the remaining steps were not tried.
    cut_off: str = ""
    #: Whether the server failed at a request until its retries ended: the others are tried once, so that the report is
    #: not late.
    impatient: bool = False

    @property
    def actions(self) -> list[Action]:
        """The actions that were carried out and changed something."""
        return [step.action for step in self.done if not isinstance(step.action, Try)]

    def lose(self, step: Step) -> None:
        """Note a conflict: the rest is planned again, and steps that need this one wait for that."""
        self.again = True
        self.closed.add(step.gate)

    def refuse(self, step: Step, reason: str, message: str) -> None:
        """Note a rejection."""
        self.closed.add(step.gate)
        self.refused[step.gate] = Finding(reason, message, step.gate)

    def holds_up(self, step: Step) -> bool:
        """Return whether a step waits for something that was rejected, or that had a conflict."""
        return bool(self.cut_off) or step.gate in self.closed or not self.closed.isdisjoint(step.needs)


class Executor:
    """Carries out plans."""

    def __init__(self, client: Client, stores: Stores, archive: ResolverArchive, kinds: Mapping[str, Kind]) -> None:
        self.archive = archive
        self._client = client
        self._kinds = kinds
        self._stores = stores
        #: All clusters of a namespace need its resolver ConfigMap, and one of them creates it.
        self._making: dict[Name, asyncio.Lock] = {}

    async def delete_copy(self, copy: ConfigMap) -> None:
        """Delete a resolver ConfigMap; one that was re-created under its name stays."""
        with suppress(NotFoundError, ConflictError):
            delete = Delete("ConfigMap", copy.meta.name, copy.meta.uid, reasons.UNUSED)
            await self._delete(delete, copy.meta.namespace, None)

    async def carry_out(self, plan: Plan, cluster: TFCluster, closed: set[Gate], wanted: Callable[[], bool]) -> Outcome:
        """Carry out a plan, group by group, while its objects are wanted."""
        outcome = Outcome(cluster, closed)
        for group in plan.groups:
            await self._carry_out_group(group, outcome, wanted)
            if outcome.again or outcome.cut_off:
                break
        return outcome

    async def _carry_out_group(self, group: Group, outcome: Outcome, wanted: Callable[[], bool]) -> None:
        remaining, batch = iter(group.steps), 1 if group.careful else len(group.steps)
        while steps := tuple(islice(remaining, batch)):
            refused, turn = len(outcome.refused), iter(steps)
            # A few workers over one iterator, not a task per action: 2,000 of them cost more than the requests.
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(len(steps), _AT_ONCE)):
                        workers.create_task(self._work_off(turn, outcome, wanted))
            except ExceptionGroup as several:
                raise several.exceptions[0] from several
            if len(outcome.refused) == refused:
                batch *= 2

    async def _work_off(self, steps: Iterator[Step], outcome: Outcome, wanted: Callable[[], bool]) -> None:
        for step in steps:
            if outcome.holds_up(step) or not wanted():
                continue
            if isinstance(step.action, Create) and step.action.is_resolver_copy:
                await self._create_copy(step, (outcome.cluster.namespace, step.action.name), outcome)
            else:
                await self._take_step(step, outcome)

    async def _create_copy(self, step: Step, name: Name, outcome: Outcome) -> None:
        """Create the resolver ConfigMap, unless the reconcile of another cluster has created it in the meantime."""
        async with self._making.setdefault(name, asyncio.Lock()):
            store = self._stores.of["ConfigMap"]
            if (found := store.get(name)) is not None:
                if not _can_be_mounted(found):
                    outcome.lose(step)
            elif await self._take_step(step, outcome) and not _can_be_mounted(store.get(name)):
                words = (
                    f"ConfigMap {name[1]} was changed during admission, so pods that mount it are not created: "
                    "exempt it from the webhook or policy that changes ConfigMaps, and delete it"
                )
                outcome.refuse(step, reasons.RESOLVER_UNTRUSTED, words)
        self._making.pop(name, None)

    async def _take_step(self, step: Step, outcome: Outcome) -> bool:
        """Carry out one step; return whether it succeeded."""
        action, about = step.action, f"{step.action.kind} {step.action.name}"
        if isinstance(action, Create) and action.looks_first and (taken := await self._look_up(action, outcome)):
            outcome.refuse(step, taken.reason, taken.message)
            return False
        try:
            await self._carry_out(action, outcome.cluster, patience=0.0 if outcome.impatient else None)
        except (ConflictError, AlreadyExistsError):
            if (taken := await self._look_up(action, outcome)) is None:
                outcome.lose(step)
            else:
                outcome.refuse(step, taken.reason, taken.message)
        except ApiError as error:
            if isinstance(error, NotFoundError) and isinstance(action, Patch | Delete):
                outcome.lose(step)
                self._forget(action, outcome.cluster.namespace)
                return False
            # A 404 for a create: its namespace is being deleted.
            failed = isinstance(error, ServerError)
            outcome.impatient = outcome.impatient or failed
            reason = reasons.REQUEST_FAILED if failed else reasons.REJECTED
            outcome.refuse(step, reason, f"{about}: {error.message or error}")
        except UnreachableError as error:
            outcome.cut_off = str(error)
            outcome.refuse(step, reasons.REQUEST_FAILED, f"{about}: {error}")
        else:
            outcome.done.append(step)
            return True
        return False

    async def _carry_out(self, action: Action, cluster: TFCluster, *, patience: float | None) -> None:
        match action:
            case Create():
                await self._create(action, cluster, patience)
            case Try():
                await self._try(action, cluster, patience)
            case Patch():
                await self._patch(action, cluster, patience)
            case Delete():
                await self._delete(action, cluster.namespace, patience)

    async def _create(self, action: Create, cluster: TFCluster, patience: float | None) -> None:
        if action.replaces:
            # If it is deleted already, this counts as a deletion; a rejected create must be distinguished from it.
            delete = Delete(action.kind, action.name, action.replaces, action.reason)
            try:
                await self._delete(delete, cluster.namespace, patience)
            except NotFoundError:
                self._forget(delete, cluster.namespace)
        body = action.build() if action.build else build_copy(cluster.namespace, self.archive)
        if action.kind == Workload.KIND and (named := body["spec"].get("priorityClassRef")):
            # Kueue expects the Workload's creator to set the value of its priority class.
            path = f"{_CLASSES[named['kind']]}/{named['name']}"
            answer = await self._client.request("GET", path, patience=patience)
            body["spec"]["priority"] = msgspec.json.decode(answer, type=_PriorityClass).value
        kind = self._kinds[action.kind]
        path = kind.path(cluster.namespace)
        answer = await self._client.request("POST", path, body=body, params=_WRITER, patience=patience)
        self._stores.of[action.kind].put(kind.read(answer))

    async def _try(self, action: Try, cluster: TFCluster, patience: float | None) -> None:
        body, params = action.build(), {**_WRITER, "dryRun": "All"}
        path = self._kinds[action.kind].path(cluster.namespace)
        try:
            await self._client.request("POST", path, body=body, params=params, patience=patience)
        except AlreadyExistsError:
            return  # the server validates the object before it finds the name in use
        except ApiError as error:
            if not any(words in error.message for words in _NO_VERDICT):
                raise

    async def _patch(self, action: Patch, cluster: TFCluster, patience: float | None) -> None:
        resource = self._kinds[action.kind]
        # With the UID in the body the server rejects the patch of an object re-created under the name: 422, not 409.
        about = {"uid": action.uid, **({"resourceVersion": action.version} if action.version else {})}
        change = {**action.change, "metadata": {**action.change.get("metadata", {}), **about}}
        path = resource.path(cluster.namespace, action.name)
        try:
            answer = await self._client.request(
                "PATCH",
                f"{path}/{action.subresource}" if action.subresource else path,
                body=change,
                params={"fieldManager": naming.FIELD_MANAGER},
                patience=patience,
            )
        except ApiError as error:
            if error.status == 422 and _OF_THE_UID in error.message:
                raise ConflictError(status=409, reason=error.reason, message=error.message) from error
            raise
        self._stores.of[action.kind].put(resource.read(answer))

    async def _delete(self, action: Delete, namespace: str, patience: float | None) -> None:
        preconditions: dict[str, Any] = {"preconditions": {"uid": action.uid}, "propagationPolicy": "Background"}
        options = {**preconditions, **({"gracePeriodSeconds": 0} if action.force else {})}
        kind = self._kinds.get(action.kind)
        path = kind.path(namespace, action.name) if kind else f"{clusters.path_of(namespace)}/{action.name}"
        answer = await self._client.request("DELETE", path, body=options, patience=patience)
        left = None
        if kind is not None:
            with suppress(msgspec.DecodeError):  # a Status object: it is deleted
                left = kind.read(answer)
        if left is not None and left.meta.terminating:
            self._stores.of[action.kind].put(left)
        else:
            self._forget(action, namespace)

    def _forget(self, action: Patch | Delete, namespace: str) -> None:
        if action.kind in self._kinds:
            self._stores.of[action.kind].forget((namespace, action.name), action.uid)

    async def _look_up(self, action: Action, outcome: Outcome) -> Finding | None:
        """Read the holder of a name that should be free; return why a create fails if no watch shows the holder."""
        kind, cluster = self._kinds.get(action.kind), outcome.cluster
        if kind is None:
            return None
        name, store = (cluster.namespace, action.name), self._stores.of[action.kind]
        params = {"fieldSelector": f"metadata.name={action.name}"}
        try:
            answer = await self._client.request("GET", kind.path(cluster.namespace), params=params)
        except KubeError as error:
            outcome.cut_off = str(error)
            return None
        found, known = next(iter(kind.read_list(answer)[0]), None), store.get(name)
        if known is not None and (found is None or found.meta.uid != known.meta.uid):
            store.forget(name, known.meta.uid)
        if found is None:
            return None
        if naming.LABEL_CLUSTER in found.meta.labels or not kind.ours_alone:
            store.put(found)
        elif found.meta.owner_uid == cluster.uid or (isinstance(found, ConfigMap) and found.is_genuine_copy):
            store.put_back(found)  # the next plan corrects its labels
        elif isinstance(action, Create):
            if action.is_resolver_copy:
                return untrusted(action.name)
            return obstacle(action.kind, action.name, holder_of(cluster, found), found.meta.finalizers)
        return None


def _can_be_mounted(copy: Child | None) -> bool:
    return isinstance(copy, ConfigMap) and copy.is_genuine_copy and not copy.meta.terminating
