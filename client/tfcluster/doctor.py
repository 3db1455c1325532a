"""``tfcluster doctor``: looks at an installation, at a cluster from outside, and into its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from typing import Final

import yaml

from tfcluster import doctor_cluster, doctor_inside, doctor_installation, looking
from tfcluster.checks import Check
from tfcluster.client import Client
from tfcluster.errors import NoClusterError, RefusedError, UnreachableError
from tfcluster.facts import installation_of, surroundings_of
from tfcluster.kubernetes_api import Object
from tfcluster.picture import Picture
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster, main_container

_HERE: Final = (
    ("definition", "`tfcluster local` brings its own"),
    ("operator", "its engine runs in `tfcluster local run`"),
    ("rights", "whoever has the session's token may do everything"),
)
_NOT_HERE: Final = (
    ("devices", "there is no device plugin; programs see the devices of this machine"),
    ("isolation", "every program of this machine reaches the tasks"),
    ("inside", "run `python3 -m tfcluster_resolver doctor` in a task's environment instead"),
)


def diagnose(
    client: Client,
    name: str | None,
    *,
    local: bool = False,
    inside: bool = True,
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[Check]:
    """Look, and judge."""
    found = installation_of(client.api, local=local)
    if local:
        yield doctor_installation.judge_server(found)
        yield from (Check(one, "skipped", why) for one, why in _HERE)
    else:
        yield from doctor_installation.judge(found, packaged_definition())
    if name is not None:
        yield from _of_cluster(client, name, say if inside and not local else None, local=local)


def packaged_definition() -> dict[str, object]:
    """Read the definition that this client was made for."""
    text = resources.files("tfcluster").joinpath("definition.yaml").read_text(encoding="utf-8")
    document: dict[str, object] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    return document


def _of_cluster(
    client: Client, name: str, look_inside: Callable[[str], object] | None, *, local: bool
) -> Iterator[Check]:
    try:
        body, picture = looking.look_closely(client, name)
    except NoClusterError as error:
        yield Check("cluster", "failed", str(error), error.hint)
        return
    except (RefusedError, UnreachableError) as error:
        yield Check("cluster", "unknown", str(error))
        return
    cluster = _read(body)
    templates = {job.name: job.template for job in cluster.jobs} if cluster is not None else {}
    limits = {job.name: job.limits() for job in cluster.jobs} if cluster is not None else {}
    surroundings = surroundings_of(client.api, name, {} if local else templates)
    not_here = dict(_NOT_HERE) if local else {}
    for check in doctor_cluster.judge(picture, limits, surroundings):
        if check.name not in {*not_here, *(("quotas", "references") if local else ())}:
            yield check
    yield from (Check(one, "skipped", why) for one, why in not_here.items())
    if look_inside is not None:
        yield from _inside(client, picture, cluster, look_inside)


def _inside(
    client: Client, picture: Picture, cluster: TFCluster | None, say: Callable[[str], object]
) -> Iterator[Check]:
    containers = {job.name: main_container(job.template) for job in cluster.jobs} if cluster is not None else {}
    tasks = doctor_inside.chosen(picture)
    if tasks:
        say(f"looking into {', '.join(task.name for task in tasks)}; that may take a minute …")
    yield from doctor_inside.judge(doctor_inside.examine(client.api, tasks, containers))


def _read(body: Object) -> TFCluster | None:
    try:
        return parse(body)
    except InvalidSpecError:
        return None
