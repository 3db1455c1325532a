"""The rules for device filters: one canonical form of TensorFlow's grammar, and only names of declared jobs.

They decide which filters are valid; definition.yaml applies them.  TensorFlow's own parser
(DeviceNameUtils::ParseFullName) accepts parts in any order, repeated and with wildcards, and the result can match
nothing or everything; in the canonical form each filter has exactly one spelling.

The API server rejects a rule whose estimated cost is above a limit, and it estimates from maxLength, maxItems and
maxProperties of what the rule iterates over: here 16 jobs x 512 tasks x 16 filters of 64 characters.  For a list that
an expression creates, such as ``list + []``, it ignores the maxLength of the elements and counts each as short;
otherwise a rule that reads every filter closely would exceed the limit.  The limit on the real cost at run time still
applies.
"""

from dataclasses import dataclass
from typing import Final

#: The canonical form without the size of its numbers, which is a separate rule: a longer pattern costs too much.
FORM: Final = (
    r"^(/job:[a-z][a-z0-9_]*)?(/replica:0)?(/task:[0-9]+)?(/device:[A-Z][A-Z0-9_]*(:[0-9]+)?|/[cg]pu:[0-9]+)?$"
)
#: A number that TensorFlow would read but not write, or that is above all our limits.
NOT_A_NUMBER: Final = ":0[0-9]|:[0-9]{5}"
#: Filters without a restriction, which match every device of the cluster.
EVERYTHING: Final = ("", "/", "/replica:0")

#: Without the redundant ``replica:0`` (TensorFlow has one replica), each part has a fixed position in a filter.
_PARTS: Final = "f.replace('/replica:0', '').split('/')"
_TASKS_OF: Final = "(has(self[{job}].maxReplicas) ? self[{job}].maxReplicas : self[{job}].replicas)"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a filter ``f``, in CEL.

    If it needs the whole cluster, ``self`` is the map of jobs and ``most`` the tasks of the largest job.
    """

    holds: str
    advice: str


OF_ONE_FILTER: Final = (
    Check(
        holds=f"f.matches('{FORM}')",
        advice=(
            "is not a device filter: write /job:J/replica:0/task:N/device:T:N, with /cpu:N or /gpu:N as a short last "
            "part, and leave out what it need not say, as in /job:ps or /job:worker/task:0"
        ),
    ),
    Check(
        holds=f"!(f in {list(EVERYTHING)})",
        advice="matches everything: name a job, a task or a device, or leave the whole list out to see everything",
    ),
    Check(
        holds=f"!f.matches('{NOT_A_NUMBER}')",
        advice="holds a number that is not written as 0 to 9999 without leading zeros: correct it",
    ),
    Check(
        holds="f != '/job:evaluator' && !f.startsWith('/job:evaluator/')",
        advice="matches nothing, because an evaluator sees the cluster and is not in it: remove the filter",
    ),
)

OF_THE_CLUSTER: Final = (
    Check(
        holds=r"!f.matches('^/job:[a-z][a-z0-9_]*(/|$)') || f.split('/')[1].substring(4) in self",
        advice="names a job that is not declared: correct the filter, or declare the job under spec.jobs",
    ),
    Check(
        holds=(
            f"[{_PARTS}].all(p, p.size() < 3 || !p[1].startsWith('job:') || !p[2].matches('^task:[0-9]{{1,4}}$') || "
            "!(p[1].substring(4) in self) || "
            f"int(p[2].substring(5)) < {_TASKS_OF.format(job='p[1].substring(4)')})"
        ),
        advice=(
            "names a task that the job does not have: use an index below the maxReplicas of the job (below its "
            "replicas where maxReplicas is left out), or raise maxReplicas"
        ),
    ),
    Check(
        holds=(
            f"[{_PARTS}].all(p, p.size() < 2 || !p[1].matches('^task:[0-9]{{1,4}}$') || int(p[1].substring(5)) < most)"
        ),
        advice="names a task that no job has: use an index below the highest maxReplicas, or name the job",
    ),
)


def of_one_list() -> list[dict[str, str]]:
    """Build the rules on one list of filters.

    Returns:
        The rules; their messages quote the first invalid filter, and the API server adds the list's path.
    """
    return [
        {
            "rule": f"(self + []).all(f, {check.holds})",
            "messageExpression": _say(check, f"(self + []).filter(f, !({check.holds}))[0]", quoted=True),
            "message": f"one of the device filters {check.advice}",
        }
        for check in OF_ONE_FILTER
    ]


def of_the_cluster() -> list[dict[str, str]]:
    """Build the rules on ``spec.jobs``, which need all jobs.

    Returns:
        Two rules for each check, one for the jobs' filters and one for those of single tasks; as the API server only
        adds the path ``spec.jobs``, their messages begin with the path of the first list with an invalid filter.
    """
    return [rule for check in OF_THE_CLUSTER for rule in (_on_jobs(check), _on_tasks(check))]


def _on_jobs(check: Check) -> dict[str, str]:
    filters = "(self[j].deviceFilters + [])"
    wrong = (
        "self.filter(j, has(self[j].deviceFilters)).map(j, "
        f"{filters}.filter(f, !({check.holds})).map(f, 'spec.jobs.' + j + '.deviceFilters: \"' + f + '\"'))"
    )
    return _on_cluster(check, "deviceFilters", f"{filters}.all(f, {check.holds})", wrong)


def _on_tasks(check: Check) -> dict[str, str]:
    filters = "(self[j].taskDeviceFilters[i] + [])"
    wrong = (
        "self.filter(j, has(self[j].taskDeviceFilters)).map(j, "
        f"self[j].taskDeviceFilters.filter(i, !{filters}.all(f, {check.holds}))"
        ".map(i, 'spec.jobs.' + j + '.taskDeviceFilters.' + i + ': one'))"
    )
    every = f"self[j].taskDeviceFilters.all(i, {filters}.all(f, {check.holds}))"
    return _on_cluster(check, "taskDeviceFilters", every, wrong)


def _on_cluster(check: Check, field: str, holds_for_job: str, wrong: str) -> dict[str, str]:
    rule = f"self.all(j, !has(self[j].{field}) || {holds_for_job})"
    say = _say(check, f"{wrong}.filter(l, l.size() > 0)[0][0]")
    if "most" in check.holds:
        most = f"self.map(j, {_TASKS_OF.format(job='j')}).max()"
        rule = f"!self.exists(j, has(self[j].{field})) || [{most}].all(most, {rule})"
        say = f"[{most}].map(most, {say})[0]"
    return {"rule": rule, "messageExpression": say, "message": f"one of the device filters {check.advice}"}


def _say(check: Check, wrong: str, *, quoted: bool = False) -> str:
    subject = '"%s"' if quoted else "%s"
    return f"'{subject} {check.advice}'.format([{wrong}])"
