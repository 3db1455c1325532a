"""A picture of a TFCluster for people: a tree of its tasks, in columns that fit the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tfcluster.kube.api import seconds_of
from tfcluster.status.picture import BAD, GOOD, Devices, JobPicture, Picture, TaskPicture
from tfcluster.terminal import clean, count

_BETWEEN: Final = "   "
_NARROWEST: Final = 10


def wrap(text: Text, width: int | None, indent: str = "") -> list[Text]:
    if width is None:
        return [Text.assemble(indent, text)]
    left = max(_NARROWEST, width - cell_len(indent))
    lines = text.wrap(Console(width=left), left)
    for line in lines:
        line.rstrip()
    return [Text.assemble(indent, line) for line in lines]


def columns(rows: Sequence[Sequence[Text] | Text], width: int | None) -> list[Text]:
    """Align cells in columns without the empty ones, and cut lines to a width in cells, None for any."""
    table = [list(row) for row in rows if not isinstance(row, Text)]
    used = [at for at in range(len(table[0])) if at == 0 or any(row[at].plain for row in table[1:])]
    widths = [max(cell_len(row[at].plain) for row in table) for at in used]
    lines = []
    for row in rows:
        line = row.copy() if isinstance(row, Text) else Text()
        for at, most in zip(used, widths, strict=True) if not isinstance(row, Text) else ():
            line.append_text(row[at])
            line.append(" " * (most - cell_len(row[at].plain)) + _BETWEEN)
        line.rstrip()
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


#: Tasks beyond this many are folded where they are neighbours and alike.
UNFOLDED: Final = 24
#: Fewer alike neighbours than this are not folded.
_LEAST_FOLDED: Final = 3
_STYLES: Final = {
    **dict.fromkeys(("Ready", "Succeeded", "Completed"), "green"),
    **dict.fromkeys(("Suspended", "CleanedUp", "Elsewhere"), "dim"),
}
#: The prefix of a task and that of its further lines, by whether the task is last.
_GUIDES: Final = {False: ("├─ ", "│  "), True: ("└─ ", "   ")}
_TITLES: Final = ("TASK", "STATE", "POD", "NODE", "AGE", "RESTARTS", "DEVICES", "VIEW")


def draw(picture: Picture, width: int | None, *, now: float, fold: int = UNFOLDED) -> list[Text]:
    lines = [*_heading(picture, width, now), Text()]
    many = sum(len(job.tasks) for job in picture.jobs) > fold
    return [*lines, *_tree(picture, width, now, many=many)]


def draw_list(pictures: Sequence[Picture], width: int | None, *, now: float, namespaces: bool) -> list[Text]:
    head = [*(("NAMESPACE",) if namespaces else ()), "NAME", "STATE", "READY", "RESTARTS", "EPOCH", "AGE", "CAUSE"]
    rows = [[Text(title, style="bold") for title in head]]
    for one in pictures:
        standing = one.standing
        fine = standing.state in {"Ready", "Succeeded", "Suspended"} and not standing.notices
        cause = "" if fine else "; ".join(filter(None, [_reason(one), *standing.notices]))
        names = [one.namespace, one.name] if namespaces else [one.name]
        rest = (one.ready, str(one.restarts), str(one.epoch), age(now - one.created), cause)
        state = Text(standing.state, style=style_of(standing.state))
        rows.append([*map(Text, names), state, *map(Text, rest)])
    return columns(rows, width)


def age(seconds: float) -> str:
    """Format a duration in short, as kubectl does: 42s, 5m, 3h12m, 2d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 3 * 3600:
        return f"{whole // 60}m"
    if whole < 2 * 86400:
        hours, minutes = divmod(whole // 60, 60)
        return f"{hours}h{minutes}m" if minutes and hours < 10 else f"{hours}h"
    return f"{whole // 86400}d"


def style_of(state: str) -> str:
    return _STYLES.get(state, "bold red" if state in BAD | {"Stalled", "Unseen"} else "yellow")


def _reason(picture: Picture) -> str:
    standing = picture.standing
    if not standing.reason or standing.state == "Updating":
        return standing.message
    return f"{standing.reason}: {standing.message}" if standing.message else standing.reason


def _heading(picture: Picture, width: int | None, now: float) -> Iterator[Text]:
    standing = picture.standing
    title = Text.assemble((picture.name, "bold"), "  ", (standing.state, style_of(standing.state)))
    title.append(f"  {picture.ready} ready" if picture.ready else "")
    title.append(f"  in namespace {picture.namespace}, for {age(now - picture.created)}", style="dim")
    yield from wrap(title, width)
    if standing.state != "Ready" and _reason(picture):
        yield from wrap(Text(_reason(picture)), width, "  ")
    for words in (*standing.notices, *picture.gaps):
        yield from wrap(Text(words, style="yellow"), width, "  ")
    yield from wrap(Text(", ".join(_facts(picture, now))), width, "  ")
    last = picture.last_restart
    if last:
        when = age(now - seconds_of(last.get("finishedAt")))
        words = f"last restart {when} ago: {last.get('task')} failed: {last.get('message') or last.get('reason')}"
        yield from wrap(Text(clean(words)), width, "  ")
        if last.get("pod"):
            words = f"its log: tfcluster logs {picture.name} {last.get('task')} --previous -n {picture.namespace}"
            yield from wrap(Text(clean(words)), width, "  ")


def _facts(picture: Picture, now: float) -> Iterator[str]:
    yield f"epoch {picture.epoch}"
    yield f"isolation {picture.isolation}"
    if picture.accelerators:
        yield picture.accelerators
    limit = "" if picture.backoff_limit is None else f" of at most {picture.backoff_limit}"
    yield f"{count(picture.restarts, 'restart')}{limit}"
    if picture.queue:
        yield f"queue {picture.queue}"
    if picture.waiting_since:
        yield f"it has waited for {age(now - picture.waiting_since)}"
    if picture.finished:
        yield f"finished {age(now - picture.finished)} ago"
    if picture.deadline:
        left = picture.deadline - now
        yield f"fails in {age(left)} if it has not finished" if left > 0 else "its deadline is over"
    if picture.deleted_at:
        yield f"deleted in {age(picture.deleted_at - now)}"


def _tree(picture: Picture, width: int | None, now: float, *, many: bool) -> list[Text]:
    titles = [Text(title if any(picture.tasks()) else "", style="bold") for title in _TITLES]
    rows: list[list[Text] | Text] = [titles]
    below: dict[int, tuple[str, list[str]]] = {}
    for job in picture.jobs:
        rows.append(Text.assemble((job.name, "bold"), f"  {_counts(job)}"))
        runs = list(_runs(job.tasks, many=many))
        for position, run in enumerate(runs):
            guide, stem = _GUIDES[position == len(runs) - 1]
            rows.append(_cells(run, now, guide))
            below[len(rows) - 1] = stem, list(_words(run[0]))
    drawn: list[Text] = []
    for number, line in enumerate(columns(rows, width)):
        if number == 0 and not line.plain:
            continue
        drawn.append(line)
        stem, words = below.get(number, ("", []))
        for text in words:
            drawn += wrap(Text(text), width, f"{stem}  ")
    return drawn


def _counts(job: JobPicture) -> str:
    parts = [f"{job.ready}/{job.desired} ready"]
    parts += [f"{job.completed} completed"] if job.completed else []
    parts += [count(job.restarts, "restart")] if job.restarts else []
    parts += [f"{job.replaced} replaced"] if job.replaced else []
    return ", ".join(parts)


def _runs(tasks: Sequence[TaskPicture], *, many: bool) -> Iterator[list[TaskPicture]]:
    """Return the tasks, neighbours that are alike together if there are many."""
    # The indices of neighbours grow as their positions do.
    for _, group in groupby(enumerate(tasks), lambda one: (_likeness(one[1]), one[1].index - one[0])):
        alike = [task for _, task in group]
        yield from [alike] if many and len(alike) >= _LEAST_FOLDED else ([task] for task in alike)


def _likeness(task: TaskPicture) -> tuple[object, ...]:
    # The cause contains the name of its own task or pod; without it, the causes of tasks can be compared.
    cause = task.cause.replace(task.pod, "") if task.pod else task.cause
    devices = tuple(sorted((name, one.requested, one.granted, one.healthy) for name, one in task.devices.items()))
    return task.state, cause, task.restarts, task.view, task.outdated, len(task.kept), devices


def _cells(run: Sequence[TaskPicture], now: float, guide: str) -> list[Text]:
    task, several = run[0], len(run) > 1
    name = f"{task.job} {task.index}–{run[-1].index}" if several else f"{task.job}-{task.index}"  # noqa: RUF001 - joins
    nodes = sorted({one.node for one in run if one.node})
    oldest = min((one.since for one in run if one.since), default=0.0)
    return [
        Text(f"{guide}{name}"),
        Text(task.state + (f" ×{len(run)}" if several else ""), style=style_of(task.state)),  # noqa: RUF001 - times
        Text("" if several else task.pod),
        Text(nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else ""),
        Text(age(now - oldest) if oldest else ""),
        Text(str(task.restarts) if task.restarts else "", style="yellow"),
        _devices(task.devices),
        Text(task.view, style="" if task.view == "delivered" else "yellow"),
    ]


def _devices(devices: Mapping[str, Devices]) -> Text:
    told = Text()
    for name, one in sorted(devices.items()):
        told.append(", " if told else "")
        short = name.rpartition("/")[2]
        if one.granted is None:
            told.append(f"{one.requested} {short} asked for", style="yellow")
        elif one.healthy == one.granted:
            told.append(f"{one.granted} {short}")
        else:
            told.append(f"{one.healthy} of {one.granted} {short} healthy", style="bold red")
    return told


def _words(task: TaskPicture) -> Iterator[str]:
    if task.cause and task.state not in GOOD:
        yield task.cause
    if task.outdated and task.state not in GOOD | {"Missing"}:
        yield "its pod has an older template"
    if task.kept:
        yield f"failed before, kept for the log: {', '.join(task.kept)}"
