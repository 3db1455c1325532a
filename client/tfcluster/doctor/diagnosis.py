"""``tfcluster doctor``: looks at an installation, at a cluster from outside, and into its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tfcluster.doctor.checks import Check
from tfcluster.doctor.cluster import judge_cluster
from tfcluster.doctor.facts import ask, installation_of, surroundings_of, version_of
from tfcluster.doctor.inside import chosen, examine, judge_answers
from tfcluster.doctor.installation import judge_installation, judge_server
from tfcluster.errors import NoClusterError, RefusedError, UnreachableError
from tfcluster.kube.api import KubernetesApi, Object
from tfcluster.manifest.validate import definition
from tfcluster.status.load import look
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import Job, main_container

_HERE: Final = (
    ("definition", "`tfcluster local` brings its own"),
    ("operator", "its engine runs in `tfcluster local run`"),
    ("rights", "everyone with the token of the session has full access"),
)
_NOT_HERE: Final = (
    ("devices", "a local cluster has no device plugin; programs see the devices of this machine"),
    ("isolation", "every program of this machine reaches the tasks"),
    ("inside", "run `python3 -m tfcluster_resolver doctor` in a task's environment instead"),
)


def diagnose(
    api: KubernetesApi,
    name: str | None,
    *,
    local: bool = False,
    inside: bool = True,
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[Check]:
    """Check the installation, and the TFCluster of that name; ``say`` is told what takes a while."""
    if local:
        yield judge_server(api.server, ask(partial(version_of, api)))
        yield from (Check(one, "skipped", why) for one, why in _HERE)
    else:
        yield from judge_installation(installation_of(api), definition())
    if name is None:
        return
    try:
        body, picture = look(api, name)
    except NoClusterError as error:
        yield Check("cluster", "failed", str(error), error.hint)
        return
    except (RefusedError, UnreachableError) as error:
        yield Check("cluster", "unknown", str(error))
        return
    jobs = _jobs_of(body)
    limits = {job.name: job.limits() for job in jobs}
    surroundings = surroundings_of(api, name, {} if local else {job.name: job.template for job in jobs})
    left_out = {*dict(_NOT_HERE), "quotas", "references"} if local else ()
    yield from (one for one in judge_cluster(picture, limits, surroundings) if one.name not in left_out)
    if local:
        yield from (Check(one, "skipped", why) for one, why in _NOT_HERE)
    elif inside:
        tasks = chosen(picture)
        if tasks:
            say(f"looking into {', '.join(task.name for task in tasks)}; that may take a minute …")
        yield from judge_answers(examine(api, tasks, {job.name: main_container(job.template) for job in jobs}))


def _jobs_of(body: Object) -> tuple[Job, ...]:
    """Read the jobs of a TFCluster; none if its spec is invalid."""
    try:
        return parse(body).jobs
    except InvalidSpecError:
        return ()
