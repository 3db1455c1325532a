"""``tfcluster doctor``: looks at an installation and at a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tfcluster.doctor.checks import Check
from tfcluster.doctor.cluster import judge_cluster
from tfcluster.doctor.facts import ask, installation_of, policies_of, version_of
from tfcluster.doctor.installation import judge_installation, judge_server
from tfcluster.errors import NoClusterError, RefusedError, UnreachableError
from tfcluster.kube.api import KubernetesApi
from tfcluster.manifest.validate import definition
from tfcluster.status.load import look


def diagnose(api: KubernetesApi, name: str | None, *, local: bool = False) -> Iterator[Check]:
    if local:
        yield judge_server(api.server, ask(partial(version_of, api)))
    else:
        yield from judge_installation(installation_of(api), definition())
    if name is None:
        return
    try:
        _, picture = look(api, name)
    except NoClusterError as error:
        yield Check("cluster", "failed", str(error), error.hint)
        return
    except (RefusedError, UnreachableError) as error:
        yield Check("cluster", "unknown", str(error))
        return
    # A local run does not have isolation to check: every program of the machine can reach its tasks.
    yield from judge_cluster(picture, None if local else policies_of(api, name))
