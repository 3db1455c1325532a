"""Carrying out a plan: each action becomes a request, each refusal a finding.

Nothing is decided here: the plan says what comes after what, and what a refusal holds up.  The answer to a write goes
into the store at once.  Losing a race (409, 404) is no failure: the store is put right and the next pass plans from
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, cast

import msgspec

from tfcluster_operator.kube import errors, parents, wire
from tfcluster_operator.kube.client import MERGE_PATCH, Client
from tfcluster_operator.kube.store import Name, Stores
from tfcluster_operator.manifests.of_actions import Creation, build, delivered_resolver
from tfcluster_operator.manifests.resolver_archive import ResolverArchive
from tfcluster_operator.model import naming, reasons
from tfcluster_operator.model.actions import (
    Action,
    CreatePod,
    CreateResolver,
    CreateWorkload,
    Delete,
    DeleteCluster,
    Finding,
    Gate,
    Group,
    Kind,
    Patch,
    Plan,
    Step,
    TryPod,
    Wanted,
    subject_of,
)
from tfcluster_operator.model.observed import Child, ObservedConfigMap
from tfcluster_operator.model.resolver_copies import is_genuine
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.story import EXCEEDED_QUOTA

#: NB: a field that the server does not know is refused by name.  Dropped in silence it would make another pod.
_WRITER: Final = {"fieldManager": naming.FIELD_MANAGER, "fieldValidation": "Strict"}
_AT_ONCE: Final = 32
#: What says nothing of a template: a full quota, of which the pod that goes frees its part, and a webhook that
#: cannot try.
_NO_VERDICT: Final = (EXCEEDED_QUOTA, "does not support dry run")
#: What the server says of a merge patch whose object has another UID.
_OF_THE_UID: Final = "metadata.uid: Invalid value"


_PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_WORKLOAD_PRIORITY_CLASSES: Final = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"


class _PriorityClass(msgspec.Struct):
    value: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of a plan: what was carried out, and what was refused, by the gate that the refusal closes.

    ``again`` is set when a race was lost, so that the rest is planned again at once.  ``cut_off`` is set when the API
    server did not answer: what was not tried yet was not tried.  ``impatient`` is set when the server failed at a
    request for as long as it was tried: the rest is tried once each, so that the report is not late.
    """

    done: list[Step] = field(default_factory=list)
    refused: dict[Gate, Finding] = field(default_factory=dict)
    again: bool = False
    cut_off: str = ""
    impatient: bool = False
    closed: set[Gate] = field(default_factory=set)
    wanted: Callable[[], bool] = lambda: True

    @property
    def actions(self) -> list[Action]:
        """The actions that were carried out and changed something."""
        return [step.action for step in self.done if not isinstance(step.action, TryPod)]

    def lose(self, step: Step) -> None:
        """Note that somebody else was faster: the rest is planned again, and what needs this waits for that."""
        self.again = True
        self.closed.add(step.gate)

    def holds_up(self, step: Step) -> bool:
        """Tell whether a step waits for something that was refused, or that lost a race."""
        return bool(self.cut_off) or step.gate in self.closed or not self.closed.isdisjoint(step.needs)


class Executor:
    """Carries out plans.

    Args:
        client: the requests.
        stores: what is known of the children.
        archive: the resolver as it is delivered into the pods.
        resources: how each kind is served and read.
    """

    def __init__(
        self,
        client: Client,
        stores: Stores,
        archive: ResolverArchive,
        resources: Mapping[Kind, wire.Resource] = wire.RESOURCES,
    ) -> None:
        self._client = client
        self._resources = resources
        self._stores = stores
        self._archive = archive
        #: All clusters of a namespace need its copy of the resolver, and one of them makes it.
        self._making: dict[Name, asyncio.Lock] = {}

    def resolver_of(self, cluster: TFCluster) -> str:
        """Name the ConfigMap that delivers the resolver to a cluster's pods, "" where the user wants none."""
        return delivered_resolver(cluster, self._archive)

    async def delete_copy(self, copy: ObservedConfigMap) -> None:
        """Delete a copy of the resolver; one that was made again under its name stays.

        Raises:
            KubeError: the API server refused or did not answer.
        """
        with suppress(errors.NotFoundError, errors.ConflictError):
            delete = Delete("ConfigMap", copy.meta.name, copy.meta.uid, reasons.UNUSED)
            await self._delete(delete, copy.meta.namespace, None)

    async def look_at(self, kind: Kind, name: str, cluster: TFCluster) -> None:
        """Read an object that holds a name which a cluster needs, and that the watch may not show.

        One of the cluster's that lost its labels counts as shown: the next plan puts them right.

        Raises:
            KubeError: it could not be read.
        """
        resource, store = self._resources[kind], self._stores.of[kind]
        params = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._client.request("GET", resource.path(cluster.namespace), params=params)
        found = next(iter(resource.read_list(answer)[0]), None)
        known = store.get((cluster.namespace, name))
        if known is not None and (found is None or found.meta.uid != known.meta.uid):
            store.forget((cluster.namespace, name), known.meta.uid)
        self._stores.unblock(cluster.uid, kind, name)
        if found is None:
            return
        if naming.LABEL_CLUSTER in found.meta.labels:
            store.put(found)
        elif _is_ours(found, cluster):
            store.put_back(found)
        else:
            self._stores.block(cluster.uid, kind, found)

    async def carry_out(
        self,
        plan: Plan,
        cluster: TFCluster,
        *,
        closed: Iterable[Gate] = (),
        wanted: Callable[[], bool] = lambda: True,
    ) -> Outcome:
        """Carry out a plan, group by group.

        Args:
            plan: what to do.
            cluster: whose children these are.
            closed: gates that are closed from the start.
            wanted: whether the cluster is there still; asked before each step, since a plan may take seconds.

        Returns:
            What was done and what was refused; whatever happens, there is an outcome to report.

        Raises:
            NotLeadingError: another replica may lead by now.
        """
        outcome = Outcome(closed=set(closed), wanted=wanted)
        for group in plan.groups:
            await self._carry_out_group(group, cluster, outcome)
            if outcome.again or outcome.cut_off:
                break
        return outcome

    async def _carry_out_group(self, group: Group, cluster: TFCluster, outcome: Outcome) -> None:
        remaining = iter(group.steps)
        batch, at_once = (1, 1) if group.careful else (len(group.steps), _AT_ONCE)
        while steps := tuple(islice(remaining, batch)):
            if not await self._carry_out_batch(iter(steps), min(len(steps), at_once), cluster, outcome):
                continue
            batch, at_once = batch * 2, min(_AT_ONCE, at_once * 2)

    async def _carry_out_batch(self, steps: Iterator[Step], at_once: int, cluster: TFCluster, outcome: Outcome) -> bool:
        """Carry out some steps; tell whether none was refused."""
        refused = len(outcome.refused)
        # NB: a few workers over one iterator, not a task an action: 2,000 tasks at once cost more than the requests.
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(at_once):
                    workers.create_task(self._work_off(steps, cluster, outcome))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several
        return len(outcome.refused) == refused

    async def _work_off(self, steps: Iterator[Step], cluster: TFCluster, outcome: Outcome) -> None:
        for step in steps:
            if outcome.holds_up(step) or not outcome.wanted():
                continue
            if isinstance(step.action, CreateResolver):
                await self._make_copy(step, (cluster.namespace, step.action.name), cluster, outcome)
            else:
                await self._try(step, cluster, outcome)

    async def _make_copy(self, step: Step, name: Name, cluster: TFCluster, outcome: Outcome) -> None:
        """Create the copy of the resolver, unless the reconcile of another cluster has made it meanwhile."""
        async with self._making.setdefault(name, asyncio.Lock()):
            found = self._stores.of["ConfigMap"].get(name)
            if found is None:
                await self._try(step, cluster, outcome)
            elif not _can_be_mounted(found):
                outcome.lose(step)
        self._making.pop(name, None)

    async def _try(self, step: Step, cluster: TFCluster, outcome: Outcome) -> None:
        action = step.action
        try:
            await self._carry_out(action, cluster, patience=0.0 if outcome.impatient else None)
            outcome.done.append(step)
            if isinstance(action, CreateResolver):
                self._judge(step, action.name, cluster, outcome)
        except errors.NotFoundError as error:
            if not isinstance(action, Patch | Delete):
                # A create that finds no place: its namespace is gone.
                _refuse(outcome, step, reasons.REJECTED, error)
                return
            outcome.lose(step)
            self._forget(action, cluster.namespace)
        except (errors.ConflictError, errors.AlreadyExistsError):
            outcome.lose(step)
            await self._look_up(action, cluster, outcome)
        except errors.ServerError as error:
            outcome.impatient = True
            _refuse(outcome, step, reasons.REQUEST_FAILED, error)
        except errors.ApiError as error:
            _refuse(outcome, step, reasons.REJECTED, error)
        except errors.UnreachableError as error:
            outcome.cut_off = str(error)
            _refuse(outcome, step, reasons.REQUEST_FAILED, error)

    def _judge(self, step: Step, name: str, cluster: TFCluster, outcome: Outcome) -> None:
        """Let no pod mount a copy of the resolver into which admission has put something else."""
        made = self._stores.of["ConfigMap"].get((cluster.namespace, name))
        if made is not None and not _can_be_mounted(made):
            words = (
                f"ConfigMap {name} came out of admission with other content than the operator sent, so no pod is made "
                "that mounts it: exempt it from the webhook or policy that changes ConfigMaps, and delete it"
            )
            outcome.closed.add(step.gate)
            outcome.refused[step.gate] = Finding(reasons.RESOLVER_UNTRUSTED, words, step.gate)

    async def _carry_out(self, action: Action, cluster: TFCluster, *, patience: float | None) -> None:
        match action:
            case CreatePod():
                await self._create_pod(action, cluster, patience)
            case TryPod():
                await self._try_pod(action, cluster, patience)
            case Patch():
                await self._patch(action, cluster, patience)
            case Delete():
                await self._delete(action, cluster.namespace, patience)
            case DeleteCluster():
                path = f"{parents.path_of(cluster.namespace)}/{cluster.name}"
                await self._client.request("DELETE", path, body=_options(action.uid))
            case _:
                await self._create(action, cluster, patience)

    async def _create_pod(self, action: CreatePod, cluster: TFCluster, patience: float | None) -> None:
        if action.replaces:
            # NB: that it is gone already is as good as a deletion; that the create is refused must be told apart.
            delete = Delete("Pod", action.name, action.replaces, action.reason)
            try:
                await self._delete(delete, cluster.namespace, patience)
            except errors.NotFoundError:
                self._forget(delete, cluster.namespace)
        await self._create(action, cluster, patience)

    async def _try_pod(self, action: TryPod, cluster: TFCluster, patience: float | None) -> None:
        body = build(action, cluster, self._archive)
        path, params = wire.PODS.path(cluster.namespace), {**_WRITER, "dryRun": "All"}
        try:
            await self._client.request("POST", path, body=body, params=params, patience=patience)
        except errors.AlreadyExistsError:
            return  # it was found valid before its name was found taken
        except errors.ApiError as error:
            if not any(words in error.message for words in _NO_VERDICT):
                raise

    async def _create(self, action: Creation, cluster: TFCluster, patience: float | None) -> None:
        body = build(action, cluster, self._archive)
        if isinstance(action, CreateWorkload) and action.claim.priority_class:
            body["spec"]["priority"] = await self._priority_of(action.claim, patience)
        kind: Kind = body["kind"]
        resource = self._resources[kind]
        answer = await self._client.request(
            "POST", resource.path(cluster.namespace), body=body, params=_WRITER, patience=patience
        )
        self._stores.of[kind].put(resource.read(answer))
        self._stores.unblock(cluster.uid, kind, body["metadata"]["name"])

    async def _priority_of(self, claim: Wanted, patience: float | None) -> int:
        """Read the value of the class with which a Workload is queued: Kueue leaves that to who writes the Workload."""
        plural = _PRIORITY_CLASSES if claim.priority_of_pods else _WORKLOAD_PRIORITY_CLASSES
        answer = await self._client.request("GET", f"{plural}/{claim.priority_class}", patience=patience)
        return msgspec.json.decode(answer, type=_PriorityClass).value

    async def _patch(self, action: Patch, cluster: TFCluster, patience: float | None) -> None:
        resource = self._resources[action.kind]
        # NB: the UID in the body makes the server refuse where another object has taken the name: as 422, not as 409.
        about = {"uid": action.uid, **({"resourceVersion": action.version} if action.version else {})}
        change = {**action.change, "metadata": {**action.change.get("metadata", {}), **about}}
        path = resource.path(cluster.namespace, action.name)
        try:
            answer = await self._client.request(
                "PATCH",
                f"{path}/{action.subresource}" if action.subresource else path,
                body=change,
                params={"fieldManager": naming.FIELD_MANAGER},
                content_type=MERGE_PATCH,
                patience=patience,
            )
        except errors.ApiError as error:
            if error.status == 422 and _OF_THE_UID in error.message:
                raise errors.ConflictError(status=409, reason=error.reason, message=error.message) from error
            raise
        patched = resource.read(answer)
        self._stores.of[action.kind].put(patched)

    async def _delete(self, action: Delete, namespace: str, patience: float | None) -> None:
        resource = self._resources[action.kind]
        options = {**_options(action.uid), **({"gracePeriodSeconds": 0} if action.force else {})}
        store = self._stores.of[action.kind]
        answer = await self._client.request(
            "DELETE", resource.path(namespace, action.name), body=options, patience=patience
        )
        left = _still_there(answer, resource)
        if left is not None and left.meta.terminating:
            store.put(left)
        else:
            self._forget(action, namespace)

    def _forget(self, action: Patch | Delete, namespace: str) -> None:
        self._stores.of[action.kind].forget((namespace, action.name), action.uid)

    async def _look_up(self, action: Action, cluster: TFCluster, outcome: Outcome) -> None:
        """Find out who holds a name that should be free: an object of ours that lost its labels, or another's."""
        kind, name = subject_of(action)
        if kind not in wire.RESOURCES:
            return
        try:
            await self.look_at(cast("Kind", kind), name, cluster)
        except errors.KubeError as error:
            outcome.cut_off = str(error)


def _is_ours(child: Child, cluster: TFCluster) -> bool:
    return child.meta.owner_uid == cluster.uid or (isinstance(child, ObservedConfigMap) and is_genuine(child))


def _can_be_mounted(copy: Child) -> bool:
    return isinstance(copy, ObservedConfigMap) and is_genuine(copy) and not copy.meta.terminating


def _refuse(outcome: Outcome, step: Step, reason: str, error: errors.KubeError) -> None:
    kind, name = subject_of(step.action)
    words = error.message or str(error) if isinstance(error, errors.ApiError) else str(error)
    outcome.closed.add(step.gate)
    outcome.refused[step.gate] = Finding(reason, f"{kind} {name}: {words}", step.gate)


def _still_there(answer: bytes, resource: wire.Resource) -> Child | None:
    try:
        child = resource.read(answer)
    except msgspec.DecodeError:  # a Status object: it is gone
        return None
    return child if child.meta.uid else None


def _options(uid: str) -> dict[str, Any]:
    return {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
