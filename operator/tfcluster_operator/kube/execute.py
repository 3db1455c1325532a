"""Carrying out a plan: each action becomes a request, each refusal a finding.

The answer to a write goes into the store at once.  Losing a race (409, 404) is no failure: the store is put right and
the next pass plans from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from tfcluster_operator.kube import errors, parents, wire
from tfcluster_operator.kube.client import MERGE_PATCH, Client
from tfcluster_operator.kube.store import Stores
from tfcluster_operator.manifests import build_config_map, build_pod, build_service
from tfcluster_operator.manifests.resolver_archive import ResolverArchive, build_resolver_config_map
from tfcluster_operator.model import naming, reasons
from tfcluster_operator.model.actions import (
    Action,
    CreateConfigMap,
    CreatePod,
    CreateResolver,
    CreateService,
    Delete,
    DeleteCluster,
    Finding,
    Kind,
    Patch,
    Plan,
)
from tfcluster_operator.model.observed import Child
from tfcluster_operator.model.spec import TFCluster

_WRITER = {"fieldManager": naming.FIELD_MANAGER, "fieldValidation": "Ignore"}


@dataclass(slots=True)
class Outcome:
    """What became of a plan: the actions that were carried out, and what was refused.

    ``again`` is set when a race was lost, so that the rest is planned anew at once.
    """

    done: list[Action] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    again: bool = False


class Executor:
    """Carries out plans.

    Args:
        client: the requests.
        stores: what is known of the children.
        archive: the resolver as it is delivered into the pods.
    """

    def __init__(self, client: Client, stores: Stores, archive: ResolverArchive) -> None:
        self._client = client
        self._stores = stores
        self._archive = archive

    def resolver_of(self, cluster: TFCluster) -> str:
        """Name the ConfigMap that delivers the resolver to a cluster's pods, "" where the user wants none."""
        return naming.resolver_name(cluster.name, self._archive.digest) if cluster.inject else ""

    async def carry_out(self, plan: Plan, cluster: TFCluster) -> Outcome:
        """Carry out a plan, stage by stage; a refusal in one stage ends it before the next.

        Args:
            plan: what to do.
            cluster: whose children these are.

        Returns:
            What was done and what was refused.

        Raises:
            UnreachableError: the API server did not answer; the rest is planned anew later.
        """
        outcome = Outcome()
        for stage in plan.stages:
            await self._carry_out_stage(stage, cluster, outcome)
            if outcome.findings or outcome.again:
                break
        return outcome

    async def _carry_out_stage(self, stage: tuple[Action, ...], cluster: TFCluster, outcome: Outcome) -> None:
        remaining = iter(stage)
        # NB: a few workers over one iterator, not a task an action: 2,000 tasks at once cost more than the requests.
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(len(stage), 32)):
                    workers.create_task(self._work_off(remaining, cluster, outcome))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several

    async def _work_off(self, actions: Iterable[Action], cluster: TFCluster, outcome: Outcome) -> None:
        for action in actions:
            if any(finding.reason == reasons.REFUSED for finding in outcome.findings):
                return  # what one was refused, the others will be: quota, Pod Security
            try:
                await self._carry_out(action, cluster)
                outcome.done.append(action)
            except (errors.NotFoundError, errors.ConflictError) as error:
                outcome.again = True
                self._forget(action, cluster, gone=isinstance(error, errors.NotFoundError))
            except errors.AlreadyExistsError:
                outcome.again = True
                await self._look_up(action, cluster)
            except errors.ApiError as error:
                outcome.findings.append(Finding(reasons.REFUSED, f"{_subject(action)}: {error.message or error}"))

    async def _carry_out(self, action: Action, cluster: TFCluster) -> None:
        match action:
            case CreateService():
                await self._create("Service", build_service(cluster), cluster)
            case CreateConfigMap(views=views):
                await self._create("ConfigMap", build_config_map(cluster, views), cluster)
            case CreateResolver():
                await self._create("ConfigMap", build_resolver_config_map(cluster, self._archive), cluster)
            case CreatePod():
                await self._create_pod(action, cluster)
            case Patch():
                await self._patch(action, cluster)
            case Delete():
                await self._delete(action, cluster)
            case DeleteCluster():
                path = f"{parents.path_of(cluster.namespace)}/{cluster.name}"
                await self._client.request("DELETE", path, body=_options(action.uid))

    async def _create_pod(self, action: CreatePod, cluster: TFCluster) -> None:
        if action.replaces:
            await self._delete(Delete("Pod", action.name, action.replaces, action.reason), cluster)
        body = build_pod(
            cluster,
            action.task,
            view_digest=action.view_digest,
            attempt=action.attempt,
            incarnation=action.incarnation,
            resolver=self.resolver_of(cluster) or None,
        )
        await self._create("Pod", body, cluster)

    async def _create(self, kind: Kind, body: dict[str, Any], cluster: TFCluster) -> None:
        resource = wire.RESOURCES[kind]
        answer = await self._client.request("POST", resource.path(cluster.namespace), body=body, params=_WRITER)
        self._stores.of[kind].put(resource.read(answer))
        self._stores.unlabelled.pop((kind, (cluster.namespace, body["metadata"]["name"])), None)

    async def _patch(self, action: Patch, cluster: TFCluster) -> None:
        resource = wire.RESOURCES[action.kind]
        # The UID in the body makes the server refuse (409) where another object has taken the name.
        change = {**action.change, "metadata": {**action.change.get("metadata", {}), "uid": action.uid}}
        answer = await self._client.request(
            "PATCH",
            resource.path(cluster.namespace, action.name),
            body=change,
            params={"fieldManager": naming.FIELD_MANAGER},
            content_type=MERGE_PATCH,
        )
        patched = resource.read(answer)
        self._stores.unlabelled.pop((action.kind, (cluster.namespace, action.name)), None)
        self._stores.of[action.kind].put(patched)

    async def _delete(self, action: Delete, cluster: TFCluster) -> None:
        resource = wire.RESOURCES[action.kind]
        options = {**_options(action.uid), **({"gracePeriodSeconds": 0} if action.force else {})}
        store = self._stores.of[action.kind]
        answer = await self._client.request("DELETE", resource.path(cluster.namespace, action.name), body=options)
        left = _still_there(answer, resource)
        if left is not None and left.meta.terminating:
            store.put(left)
        else:
            store.forget((cluster.namespace, action.name), action.uid)

    def _forget(self, action: Action, cluster: TFCluster, *, gone: bool) -> None:
        if gone and isinstance(action, Patch | Delete):
            self._stores.of[action.kind].forget((cluster.namespace, action.name), action.uid)

    async def _look_up(self, action: Action, cluster: TFCluster) -> None:
        """Find out who holds a name that should be free: an object of ours that lost its labels, or another's."""
        kind, name = _target(action)
        await look_up(self._client, self._stores, cast("Kind", kind), (cluster.namespace, name))


async def look_up(client: Client, stores: Stores, kind: Kind, name: tuple[str, str]) -> None:
    """Read one object that no watch of ours shows, and note what it is.

    Args:
        client: the requests.
        stores: where it is noted.
        kind: its kind.
        name: its namespace and name.

    Raises:
        KubeError: it could not be read.
    """
    resource = wire.RESOURCES[kind]
    params = {"fieldSelector": f"metadata.name={name[1]}"}
    found, _ = resource.read_list(await client.request("GET", resource.path(name[0]), params=params))
    stores.unlabelled.pop((kind, name), None)
    for child in found:
        if naming.LABEL_CLUSTER in child.meta.labels:
            stores.of[kind].put(child)
        else:
            stores.unlabelled[kind, name] = child


def _still_there(answer: bytes, resource: wire.Resource) -> Child | None:
    try:
        child = resource.read(answer)
    except msgspec.DecodeError:  # a Status object: it is gone
        return None
    return child if child.meta.uid else None


def _options(uid: str) -> dict[str, Any]:
    return {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}


def _target(action: Action) -> tuple[str, str]:
    match action:
        case CreateService(name=name):
            return "Service", name
        case CreateConfigMap(views=views):
            return "ConfigMap", views.name
        case CreatePod(name=name):
            return "Pod", name
        case CreateResolver(name=name):
            return "ConfigMap", name
        case DeleteCluster(name=name):
            return naming.KIND, name
        case Patch(kind=kind, name=name) | Delete(kind=kind, name=name):
            return kind, name


def _subject(action: Action) -> str:
    kind, name = _target(action)
    return f"{kind} {name}"
