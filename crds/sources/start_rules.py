"""The rules for the start order of jobs: startAfter names other declared jobs, without a cycle.

They decide which orders are valid; definition.yaml applies them.  CEL has neither variables nor recursion, so the
search for cycles is written out round by round: first the jobs without a startAfter can start, then those that wait
only for these, and so on.  Later rounds after one without a new job do not add jobs either, so MOST_JOBS rounds find
every job that can start; the remaining ones wait for a cycle.
"""

from typing import Final

#: The limit of spec.jobs, and so the length of the longest chain.
MOST_JOBS: Final = 16

_UNDECLARED: Final = "has(self[j].startAfter) && !self[j].startAfter.all(d, d in self)"
_ITSELF: Final = "has(self[j].startAfter) && j in self[j].startAfter"
#: The jobs that can start once those of the round before are ready; errors of the other two rules are left to them.
_STARTABLE: Final = (
    "self.filter(j, !has(self[j].startAfter) || self[j].startAfter.all(d, d in {before} || d == j || !(d in self)))"
)
#: The remaining jobs that another one waits for: jobs that only wait for a cycle are removed round by round.
_IN_CIRCLE: Final = (
    "self.filter(j, j in {before} && self.exists(k, k in {before} && k != j && j in self[k].startAfter))"
)


def of_the_jobs() -> list[dict[str, str]]:
    """Build the rules on ``spec.jobs``, which need all jobs.

    Returns:
        The rules; as the API server only adds the path ``spec.jobs``, their messages begin with the path of the error.
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
            # The API server checks every rule again with each write of a status.
            "!self.exists(j, has(self[j].startAfter)) || "
            + _bound([("r0", "['']"), *startable], f"{last}.size() == self.size()"),
            wrong=_bound(
                [("r0", "['']"), *startable, stuck, *in_circle],
                f"'spec.jobs.' + c{MOST_JOBS}.join('.startAfter, spec.jobs.') + '.startAfter'",
            ),
            advice="name each other in a circle, so that none of these jobs would ever start: remove one of the names",
        ),
    ]


def _bound(names: list[tuple[str, str]], expression: str) -> str:
    # A comprehension over a list of one element is CEL's way to name a value.
    for name, value in reversed(names):
        expression = f"[{value}].map({name}, {expression})[0]"
    return expression


def _rule(holds: str, *, wrong: str, advice: str) -> dict[str, str]:
    return {"rule": holds, "messageExpression": f"{wrong} + ' {advice}'", "message": f"a startAfter {advice}"}
