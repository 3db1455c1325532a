"""The report on a conversion: what its reader must do first, then what is good to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tfcluster.convert.check import Comparison
from tfcluster.convert.conversion import Conversion
from tfcluster.convert.documents import Stream
from tfcluster.convert.tfjob import Outcome, Verdict
from tfcluster.terminal import few, spelled
from tfcluster_operator.declaration import naming

_SHOWN: Final = 8
#: The headings, and the style of each; unchanged fields are only counted.
_HEADINGS: Final = {
    Outcome.REJECTED: ("Rejected", "bad"),
    Outcome.LOSSY: ("Lost, and what to do", "waiting"),
    Outcome.NOTED: ("To know", "name"),
    Outcome.EXPLICIT: ("Written out, because the default of a TFCluster is another", "name"),
}


class Line(NamedTuple):
    """One line of a report, and the style it is printed in."""

    text: str
    style: str = "plain"


def lines(stream: Stream, name: str, *, quiet: bool = False) -> Iterator[Line]:
    for conversion in stream.conversions:
        yield from _of_one(conversion, name, quiet=quiet)
    if stream.beside:
        yield Line(f"{name}: beside the TFJobs, unchanged, and what to do", "waiting")
        yield from (Line(f"  {words}") for words in stream.beside)


def _of_one(conversion: Conversion, name: str, *, quiet: bool) -> Iterator[Line]:
    grave = (Outcome.REJECTED, Outcome.LOSSY)
    if quiet and not conversion.of(*grave):
        return
    result = f"{naming.KIND} {conversion.job.name}" if conversion.cluster is not None else "nothing"
    yield Line(f"{name}: TFJob {conversion.job.name} → {result}", "name")
    for outcome, (heading, style) in _HEADINGS.items():
        # If a field is rejected, only the rejections matter: the manifest must change first.
        if (quiet or conversion.cluster is None) and outcome not in grave:
            continue
        if told := list(_grouped(conversion.of(outcome))):
            yield Line(f"  {heading}:", style)
            yield from (Line(f"    {words}") for words in told)
    if quiet or conversion.cluster is None:
        return
    if left_out := conversion.of(Outcome.LEFT_OUT):
        yield Line(f"  Left out without a loss: {', '.join(spelled(one.path) for one in left_out)}.")
    yield Line(f"  Carried over as they are: {len(conversion.of(Outcome.SAME))} fields.")


def _grouped(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Group fields with the same remark, and list all of them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in verdicts:
        paths = groups.setdefault((one.words, one.target), [])
        if (path := spelled(one.path)) not in paths:
            paths.append(path)
    for (words, target), paths in groups.items():
        where = " → ".join(part for part in (", ".join(paths), target) if part)
        yield f"{where}: {words}" if words else where


def checked(comparison: Comparison) -> Iterator[Line]:
    if not comparison.told:
        yield Line("  Check: neither sets TF_CONFIG, since there is a single replica.", "good")
        return
    unwanted = [one for one in comparison.differences if not one.wanted]
    wanted: dict[tuple[str, str], list[str]] = {}
    for one in comparison.differences:
        if one.wanted:
            wanted.setdefault((one.words, one.wanted), []).append(one.task)
    if unwanted:
        yield Line("  Check: TF_CONFIG would differ:", "bad")
        yield from (Line(f"    {one.task}: {one.words}") for one in unwanted[:_SHOWN])
        yield from _more(len(unwanted))
    else:
        same = "the same ClusterSpec" + (", but for defects of TFJob" if wanted else "")
        yield Line(
            f"  Check: {comparison.replicas} replicas find {same}; only the domain of addresses differs.", "good"
        )
    for (words, why), tasks in list(wanted.items())[:_SHOWN]:
        yield Line(f"    {few(tasks, 4)}: {words}: wanted ({why})")
    yield from _more(len(wanted))


def _more(count: int) -> Iterator[Line]:
    if count > _SHOWN:
        yield Line(f"    and {count - _SHOWN} more like these")
