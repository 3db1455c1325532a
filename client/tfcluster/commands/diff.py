"""``tfcluster diff``: what applying a manifest would do to what runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import click

from tfcluster import exit_codes
from tfcluster.commands import options
from tfcluster.commands.output import console, data, say, styled
from tfcluster.errors import TFClusterError
from tfcluster.task_names import spell

if TYPE_CHECKING:
    from rich.text import Text

    from tfcluster.client import Client
    from tfcluster.edits import Edit


class _Comparison(click.Command):
    """A command that says by its exit code whether something differs, or that it does not know."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TFClusterError as error:
            error.exit_code = exit_codes.NOT_COMPARED
            raise


@click.command(cls=_Comparison)
@options.files
@options.place
@options.output("table", "json", "yaml")
@options.examples("""
    $ tfcluster diff -f digits.yaml
    $ tfcluster diff -f digits.yaml -o json
""")
@click.pass_context
def command(ctx: click.Context, /, *, client: Client, files: tuple[str, ...], output: str) -> None:
    """Say what applying a manifest would do: which pods it replaces and why, and what tasks see then.

    Nothing is changed by asking. Exit codes are those of `kubectl diff`: 0 nothing differs, 1 something does, 2 it
    could not be found out.
    """
    from tfcluster import manifest_files
    from tfcluster.edits import edit_of

    manifests = manifest_files.read_clusters(files)
    edits = [edit_of(client.api, manifest) for manifest in manifests.clusters]
    if manifests.others:
        kinds = ", ".join(sorted({one.kind or "objects without a kind" for one in manifests.others}))
        say(f"{kinds}: not compared, `kubectl diff` does that.")
    if output == "table":
        for edit in edits:
            for line in _lines(edit):
                console().print(line)
    else:
        data({"clusters": [_as_document(edit) for edit in edits]}, output)
    if any(edit.differs for edit in edits):
        ctx.exit(exit_codes.DIFFERS)


_SIGNS: Final = {"create": ("+", "good"), "replace": ("~", "waiting"), "change": ("~", "waiting")}
_SIGNS_OF_ENDS: Final = {"delete": ("-", "bad"), "keep": (" ", "off")}
_DONE: Final = {
    "create": "created",
    "replace": "replaced",
    "change": "changed",
    "delete": "deleted",
    "keep": "of an older template",
}


def _lines(edit: Edit) -> Iterator[Text]:
    from tfcluster.view_changes import spell_tasks

    where = f"{edit.namespace}/{edit.name}"
    if not edit.exists:
        yield styled(f"{where} is new", "name")
    elif not edit.fields:
        yield styled(f"{where}: nothing differs", "name")
    else:
        yield styled(f"{where}: {_counted(len(edit.fields), 'field')} would change, {edit.how}", "name")
    for field in edit.fields:
        yield _line("~", "waiting", f"{field.path}: {_value(field.before)} -> {_value(field.after)}")
    for pods in edit.pods:
        sign, style = (_SIGNS | _SIGNS_OF_ENDS)[pods.what]
        tasks = _ordered(pods.job, pods.tasks)
        are = "is" if len(pods.tasks) == 1 else "are"
        why = ", ".join(words for words in (pods.field and f"because of {pods.field}", pods.words) if words)
        yield _line(sign, style, f"{tasks} {are} {_DONE[pods.what]}" + (f": {why}" if why else ""))
    for one in edit.objects:
        sign, style = (_SIGNS | _SIGNS_OF_ENDS)[one.what]
        yield _line(sign, style, f"{one.kind} {one.name} is {_DONE[one.what]}")
    for seen in edit.views:
        readers = spell_tasks(tuple((seen.job, index) for index in seen.tasks))
        told = [
            *([f"{spell_tasks(seen.added)} comes into sight"] if seen.added else ()),
            *([f"{spell_tasks(seen.removed)} goes out of sight"] if seen.removed else ()),
            *([f"{spell_tasks(seen.moved)} has another address"] if seen.moved else ()),
            *([f"{spell_tasks(seen.filters)} has other device filters"] if seen.filters else ()),
            *(f"other {one}" for one in seen.others),
        ]
        epochs = "" if seen.epochs[0] == seen.epochs[1] else f" (epoch {seen.epochs[0]} -> {seen.epochs[1]})"
        yield _line("~", "waiting", f"view of {readers}: {', '.join(told) or 'written again'}{epochs}")
    for note in edit.notes:
        yield _line("!", "bad", note)


def _line(sign: str, style: str, words: str) -> Text:
    return styled(f"  {sign} ", style).append(words, style="")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number > 1 else "")


def _value(value: Any) -> str:
    import json

    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _ordered(job: str, tasks: tuple[int, ...]) -> str:
    """Spell tasks in the order in which something is done to them."""
    first, last = tasks[0], tasks[-1]
    steps = {later - earlier for earlier, later in pairwise(tasks)}
    if len(tasks) > 2 and steps in ({1}, {-1}):
        return f"{spell(job, first)} to {spell(job, last)}"
    return ", ".join(spell(job, index) for index in tasks)


def _as_document(edit: Edit) -> dict[str, Any]:
    document = asdict(edit)
    for field in document["fields"]:
        del field["where"]
    for view in document["views"]:
        view["epochs"] = [*view["epochs"]]
        for key in ("added", "removed", "moved", "filters"):
            view[key] = [spell(*task) for task in view[key]]
        view["tasks"] = [spell(view["job"], index) for index in view["tasks"]]
    for pods in document["pods"]:
        pods["tasks"] = [spell(pods["job"], index) for index in pods["tasks"]]
    return {"differs": edit.differs, **document}
