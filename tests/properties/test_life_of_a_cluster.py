"""Lives of clusters as Hypothesis makes them: edits, endings, disruptions, jumps of the clock and crashes in any order.

A few hundred sequences are a part of every check; TFCLUSTER_LIVES=2000 asks for more.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from properties.living_cluster import EXITS, LivingCluster, template
from properties.reference_life import Fact

LIVES = settings(
    max_examples=int(os.environ.get("TFCLUSTER_LIVES", "150")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

_PICK = st.integers(0, 5)
_JOBS = st.sampled_from(["chief", "evaluator", "ps", "worker"])
#: What the operator makes of an event before the next one: mostly its work, and the nodes theirs.
_THEN = st.sampled_from(["", "works", "works", "works", "settles", "settles", "settles", "crashes"])
_OPERATOR_STOPS = ("before the evidence", "the write is refused", "in the actions", "before the report")
#: Fields of the whole cluster and what they are edited to; None takes the field out.
_CLUSTER_EDITS: tuple[tuple[str, Any], ...] = (
    *(("backoffLimit", limit) for limit in (None, 0, 1, 2, 6)),
    *(("successPolicy", policy) for policy in (None, {"jobs": ["worker"]}, {"jobs": ["worker", "ps"], "tasks": "Any"})),
    *(("activeDeadlineSeconds", seconds) for seconds in (None, 60, 2000)),
    *(("ttlSecondsAfterFinished", seconds) for seconds in (None, 0, 100)),
    *(("cleanPodPolicy", policy) for policy in ("Running", "All", "None")),
    *(("terminatingGraceSeconds", seconds) for seconds in (None, 5)),
    ("updateStrategy", {"type": "Recreate"}),
    ("updateStrategy", {"type": "OnDelete"}),
    ("updateStrategy", {"type": "RollingUpdate"}),
    ("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}),
)
_JOB_EDITS: tuple[tuple[str, Any], ...] = (
    *(("restartPolicy", policy) for policy in ("OnFailure", "Always", "Never", "ExitCode")),
    *(("restartScope", scope) for scope in ("Task", "Job", "Cluster")),
    *(("drainSeconds", seconds) for seconds in (0, 20)),
)


class LivesOfAClusterTest(RuleBasedStateMachine):
    """Whatever happens in whatever order, the operator knows what the reference model knows, and does no more."""

    living: LivingCluster

    @initialize(
        sizes=st.fixed_dictionaries(
            {"chief": st.integers(0, 1), "evaluator": st.integers(0, 1), "ps": st.integers(0, 2), "worker": _PICK}
        ),
        policy=st.sampled_from(["OnFailure", "OnFailure", "ExitCode", "Always", "Never"]),
        scope=st.sampled_from(["Task", "Task", "Job", "Cluster"]),
        sidecar=st.booleans(),
        ordered=st.booleans(),
        suspend=st.sampled_from([False, False, False, True]),
    )
    def declare(self, *, sizes, policy, scope, sidecar, ordered, suspend):
        common = {"restartPolicy": policy, "restartScope": scope, "template": template("image:1", sidecar=sidecar)}
        jobs = {
            name: {"replicas": count, **common} for name, count in sizes.items() if count or name in {"ps", "worker"}
        }
        if ordered:
            jobs["worker"] = {**jobs["worker"], "startAfter": ["ps"]}
        self.living = LivingCluster({"jobs": jobs, "suspend": suspend})
        self.living.one_pass()

    def teardown(self):
        if hasattr(self, "living") and not self.living.deleted:
            self.living.calm_down()

    def _choose(self, pick: int, which: Any) -> str | None:
        names = sorted(name for name, fact in self.living.facts.items() if which(fact))
        return names[pick % len(names)] if names else None

    def _alive(self) -> bool:
        return not self.living.deleted

    def _then(self, then: str) -> None:
        match then:
            case "works":
                self.living.one_pass()
            case "crashes":
                self.living.one_pass(stop="before the report")
            case "settles":
                for _ in range(3):
                    self._pods_start(ready=True)
                    self._pods_vanish()
                    if not self.living.deleted:
                        self.living.one_pass()
                    self.living.world.now += 2.0

    def _pods_start(self, *, ready: bool) -> None:
        for name, fact in list(self.living.facts.items()):
            if _waits(fact):
                self.living.world.run(name, ready=ready)

    def _pods_vanish(self) -> None:
        for name, fact in list(self.living.facts.items()):
            if fact.asked_at is not None:
                self.living.world.vanish(name)

    @precondition(lambda self: self.living.deleted)
    @rule()
    def declare_it_again(self):
        jobs = {name: {**job, "replicas": max(1, job["replicas"])} for name, job in self.living.spec["jobs"].items()}
        self.living = LivingCluster({"jobs": jobs, "suspend": False})
        self.living.one_pass()

    # --- the operator

    @precondition(_alive)
    @rule(seconds=st.sampled_from([0, 0, 1, 2, 5]))
    def the_operator_works(self, seconds):
        self.living.one_pass()
        self.living.world.now += seconds

    @precondition(_alive)
    @rule(stop=st.sampled_from(_OPERATOR_STOPS), after=st.integers(0, 8))
    def the_operator_crashes(self, stop, after):
        self.living.one_pass(stop=stop, after=after)

    @precondition(_alive)
    @rule(number=_PICK)
    def a_write_is_refused(self, number):
        self.living.one_pass(refuse=number)

    @precondition(_alive)
    @rule(seconds=st.sampled_from([1, 2, 10, 40, 300, 700]))
    def time_passes(self, seconds):
        self.living.world.now += seconds

    # --- the nodes

    @precondition(_alive)
    @rule(ready=st.sampled_from([True, True, True, False]), then=_THEN)
    def all_pods_start(self, ready, then):
        self._pods_start(ready=ready)
        self._then(then)

    @precondition(_alive)
    @rule(pick=_PICK, ready=st.booleans(), then=_THEN)
    def readiness_changes(self, pick, ready, then):
        if name := self._choose(pick, _runs):
            self.living.world.set_ready(name, ready=ready)
        self._then(then)

    @precondition(_alive)
    @rule(pick=_PICK, how=st.sampled_from(sorted(EXITS)), at_once=st.booleans(), then=_THEN)
    def a_program_ends(self, pick, how, at_once, then):
        if name := self._choose(pick, _runs):
            self.living.world.exit(name, how)
            if at_once and how != "unknown":
                self.living.world.rest(name)
        self._then(then)

    @precondition(_alive)
    @rule(how=st.sampled_from(["exit 1", "exit 137", "exit 0"]), then=_THEN)
    def all_programs_of_the_workers_end(self, how, then):
        for name, fact in list(self.living.facts.items()):
            if _runs(fact) and fact.task[0] == "worker":
                self.living.world.exit(name, how)
                self.living.world.rest(name)
        self._then(then)

    @precondition(_alive)
    @rule(pick=_PICK, then=_THEN)
    def an_ended_pod_comes_to_rest(self, pick, then):
        if name := self._choose(pick, lambda f: f.ended_at is not None and not f.taken and f.code is not None):
            self.living.world.rest(name)
        self._then(then)

    @precondition(_alive)
    @rule(pick=_PICK, how=st.sampled_from(["evicted", "preempted", "rejected"]), then=_THEN)
    def a_pod_is_taken_away(self, pick, how, then):
        which = _waits if how == "rejected" else _runs
        if name := self._choose(pick, which):
            self.living.world.take(name, how)
        self._then(then)

    @precondition(_alive)
    @rule(pick=_PICK, then=_THEN)
    def somebody_deletes_a_pod(self, pick, then):
        if name := self._choose(pick, lambda _: True):
            self.living.world.delete("Pod", name)
        self._then(then)

    @precondition(_alive)
    @rule(pick=_PICK, code=st.sampled_from([0, 143]), then=_THEN)
    def a_terminating_pod_says_its_last_word(self, pick, code, then):
        if name := self._choose(pick, lambda f: f.asked_at is not None and not f.confirmed):
            self.living.world.last_word(name, code)
        self._then(then)

    @precondition(_alive)
    @rule(then=_THEN)
    def terminating_pods_vanish(self, then):
        self._pods_vanish()
        self._then(then)

    # --- the user

    def _edit(self, **changes: Any) -> None:
        spec = {**self.living.spec, **changes}
        self.living.spec = {name: value for name, value in spec.items() if value is not None}
        self.living.generation += 1

    def _edit_job(self, name: str, **changes: Any) -> None:
        jobs = self.living.spec["jobs"]
        if name in jobs:
            self._edit(jobs={**jobs, name: {**jobs[name], **changes}})

    @precondition(_alive)
    @rule(edit=st.sampled_from(_CLUSTER_EDITS), then=_THEN)
    def edit_the_cluster(self, edit, then):
        self._edit(**dict([edit]))
        self._then(then)

    @precondition(_alive)
    @rule(job=_JOBS, edit=st.sampled_from(_JOB_EDITS), then=_THEN)
    def edit_a_job(self, job, edit, then):
        self._edit_job(job, **dict([edit]))
        self._then(then)

    @precondition(_alive)
    @rule(job=st.sampled_from(["ps", "worker", "worker"]), replicas=st.integers(0, 4), then=_THEN)
    def scale(self, job, replicas, then):
        self._edit_job(job, replicas=replicas)
        self._then(then)

    @precondition(_alive)
    @rule(job=_JOBS, image=st.sampled_from(["image:1", "image:2", "image:3"]), then=_THEN)
    def edit_a_template(self, job, image, then):
        if job in (jobs := self.living.spec["jobs"]):
            sidecar = len(jobs[job]["template"]["spec"]["containers"]) > 1
            self._edit_job(job, template=template(image, sidecar=sidecar))
        self._then(then)

    @precondition(_alive)
    @rule(then=_THEN)
    def suspend_or_resume(self, then):
        self._edit(suspend=not self.living.spec["suspend"])
        self._then(then)


def _runs(fact: Fact) -> bool:
    return fact.began_at is not None and fact.ended_at is None and fact.asked_at is None


def _waits(fact: Fact) -> bool:
    return fact.began_at is None and fact.ended_at is None and fact.asked_at is None


TestLivesOfACluster = LivesOfAClusterTest.TestCase
TestLivesOfACluster.settings = LIVES
