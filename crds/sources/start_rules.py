"""The rules for the order in which jobs start: startAfter names other jobs that are declared, and holds no circle.

It decides which orders a TFCluster may have; definition.yaml says where the rules stand.  CEL has neither variables nor
recursion, so the search for circles is written out round by round: first the jobs that wait for nobody can start, then
those that wait for these alone, and so on.  A round that finds no further job is the last that matters, so MOST_JOBS
rounds find every job that ever starts; what is left waits for a circle.
"""

from __future__ import annotations

from typing import Final

#: The bound of spec.jobs, and so the length of the longest chain.
MOST_JOBS: Final = 16

_UNDECLARED: Final = "has(self[j].startAfter) && !self[j].startAfter.all(d, d in self)"
_ITSELF: Final = "has(self[j].startAfter) && j in self[j].startAfter"
#: The jobs that can start once those of the round before are ready; what the other two rules refuse is left to them.
_STARTABLE: Final = (
    "self.filter(j, !has(self[j].startAfter) || self[j].startAfter.all(d, d in {before} || d == j || !(d in self)))"
)
#: The jobs left for which another one that is left waits: those that only wait for a circle go, round by round.
_IN_CIRCLE: Final = (
    "self.filter(j, j in {before} && self.exists(k, k in {before} && k != j && j in self[k].startAfter))"
)


def of_the_jobs() -> list[dict[str, str]]:
    """Write the rules on ``spec.jobs``, which see all jobs at once.

    Returns:
        The rules; as the API server gives the path ``spec.jobs`` alone, their messages begin with the path of what is
        wrong.
    """
    startable = [(f"r{number}", _STARTABLE.format(before=f"r{number - 1}")) for number in range(1, MOST_JOBS + 1)]
    in_circle = [(f"c{number}", _IN_CIRCLE.format(before=f"c{number - 1}")) for number in range(1, MOST_JOBS + 1)]
    last = f"r{MOST_JOBS}"
    stuck = ("c0", f"self.filter(j, !(j in {last}))")
    return [
        _rule(
            f"!self.exists(j, {_UNDECLARED})",
            wrong=(
                f"self.filter(j, {_UNDECLARED}).map(j, "
                "'spec.jobs.' + j + '.startAfter: \"' + self[j].startAfter.filter(d, !(d in self))[0] + '\"')[0]"
            ),
            advice="is not a job that is declared: correct the name, or declare the job under spec.jobs",
        ),
        _rule(
            f"!self.exists(j, {_ITSELF})",
            wrong=f"self.filter(j, {_ITSELF}).map(j, 'spec.jobs.' + j + '.startAfter: \"' + j + '\"')[0]",
            advice="is the job itself, which would wait for its own tasks and never start: remove it",
        ),
        _rule(
            _bound([("r0", "['']"), *startable], f"{last}.size() == self.size()"),
            wrong=_bound(
                [("r0", "['']"), *startable, stuck, *in_circle],
                f"'spec.jobs.' + c{MOST_JOBS}.join('.startAfter, spec.jobs.') + '.startAfter'",
            ),
            advice="name each other in a circle, so that none of these jobs would ever start: remove one of the names",
        ),
    ]


def _bound(names: list[tuple[str, str]], expression: str) -> str:
    # NB: a list of one element, walked through, is CEL's way to give a value a name.
    for name, value in reversed(names):
        expression = f"[{value}].map({name}, {expression})[0]"
    return expression


def _rule(holds: str, *, wrong: str, advice: str) -> dict[str, str]:
    return {"rule": holds, "messageExpression": f"{wrong} + ' {advice}'", "message": f"a startAfter {advice}"}
