"""How existing pods are replaced after an edit of a template, by spec.updateStrategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.objects.pod import Pod


@dataclass(frozen=True, slots=True)
class Rollout:
    """The rollout of one job.

    ``outdated`` pods have an older template and are not being deleted, ``leaving`` pods have one and terminate already;
    ``unavailable`` are the tasks that are not running.
    """

    job: Job
    outdated: tuple[Place, ...]
    leaving: tuple[Place, ...]
    unavailable: tuple[Place, ...]

    @property
    def old(self) -> tuple[Place, ...]:
        """Every task whose pod has an older template."""
        return (*self.outdated, *self.leaving)


def rollout_of(roster: Roster, job: Job) -> Rollout:
    """Compare a job's pods with its template; completed tasks are left out, they do not run again."""
    # A shortcut: this excludes nearly all of thousands of tasks.
    places = [place for place in roster.of(job) if place.stage is not Stage.SERVING or not place.settled]
    places = [place for place in places if place.stage is not Stage.COMPLETED]
    old = [place for place in places if place.outdated]
    return Rollout(
        job,
        outdated=tuple([place for place in old if place.stage is not Stage.TERMINATING]),
        leaving=tuple([place for place in old if place.stage is Stage.TERMINATING]),
        unavailable=tuple([place for place in places if not place.serving]),
    )


def to_replace(cluster: TFCluster, rollout: Rollout) -> Sequence[Pod]:
    """Select the outdated pods to delete now."""
    # RollingUpdate goes from the highest index.  Outdated pods that do not run come first, so that a template that
    # never became ready can be corrected.
    strategy = cluster.spec.update_strategy
    if strategy.type == "OnDelete":
        return ()
    if strategy.type == "Recreate":
        return tuple(place.pod for place in rollout.outdated if place.pod is not None)
    return tuple(_in_order(rollout, strategy.within(rollout.job.replicas)))


def _in_order(rollout: Rollout, max_unavailable: int) -> Iterator[Pod]:
    room = max_unavailable - len(rollout.unavailable)
    for place in reversed(rollout.outdated):
        if place.pod is None:
            continue
        if not place.serving:
            yield place.pod
        elif room > 0:
            room -= 1
            yield place.pod
