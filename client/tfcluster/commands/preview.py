"""``tfcluster render``, ``validate``, ``diff`` and ``matrix``: what a manifest means, and what applying it would do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from tfcluster.commands import options
from tfcluster.commands.options import ClusterName
from tfcluster.commands.output import console, data, say, styled
from tfcluster.errors import ExitCode, ManifestError, TFClusterError
from tfcluster.tasks import runs_of, spell
from tfcluster.terminal import brief, count

if TYPE_CHECKING:
    from rich.text import Text

    from tfcluster.client import Client
    from tfcluster.preview.diff import Edit
    from tfcluster.preview.render import TaskView
    from tfcluster_operator.declaration.spec import TFCluster


@click.command()
@options.files
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace of objects without one.")
@options.output("yaml", "json")
@click.option("--views", is_flag=True, help="Print the views of tasks instead of objects.")
@options.examples("""
    $ tfcluster render -f digits.yaml
    $ tfcluster render -f digits.yaml --views
""")
def render_command(*, files: tuple[str, ...], namespace: str, output: str, views: bool) -> None:
    """Print the objects that the operator would create, and the view of each task.

    This works without a Kubernetes cluster. <uid> stands for the UID that the API server gives the TFCluster; epochs
    and digests are those of a new TFCluster. The ConfigMap that delivers the resolver is not printed.
    """
    from tfcluster.manifest.files import read_clusters
    from tfcluster.manifest.validate import declare
    from tfcluster.manifest.yaml import write
    from tfcluster.preview.render import render

    documents: list[dict[str, Any]] = []
    for manifest in read_clusters(files).clusters:
        cluster = declare(manifest, namespace)
        rendered = render(cluster, managed_by=manifest.body["spec"].get("managedBy"))
        for note in rendered.notes:
            say(f"{manifest.name}: {note}.")
        documents += [_view_document(cluster.name, one) for one in rendered.views] if views else rendered.objects
    if output == "yaml":
        click.echo("".join("---\n" + write(document, width=120) for document in documents), nl=False)
    else:
        data({"views": documents} if views else {"apiVersion": "v1", "kind": "List", "items": documents}, "json")


def _view_document(cluster: str, seen: TaskView) -> dict[str, Any]:
    from tfcluster_resolver import contract

    tasks = [spell(seen.job, index) for index in seen.tasks]
    return {"cluster": cluster, "tasks": tasks, "file": seen.file, "view": json.loads(contract.dump(seen.view))}


@click.command()
@options.files
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace of objects without one.")
@options.examples("""
    $ tfcluster validate -f digits.yaml
""")
def validate_command(*, files: tuple[str, ...], namespace: str) -> None:
    """Validate the TFClusters in files, without a Kubernetes cluster.

    This applies the schema and the rules of the CRD, as `kubectl apply` does, and then what the operator would reject.
    The exit code is 1 if a TFCluster is not valid.
    """
    from tfcluster.manifest.files import read_clusters
    from tfcluster.manifest.validate import declare

    found = []
    for manifest in read_clusters(files).clusters:
        try:
            declare(manifest, namespace)
        except ManifestError as error:
            found.append(str(error))
        else:
            click.echo(f"{manifest.place()}: TFCluster {manifest.name} is valid")
    if found:
        raise ManifestError("\n".join(found))


class _Comparison(click.Command):
    """A command that says by its exit code whether something differs, or that it does not know."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TFClusterError as error:
            error.exit_code = ExitCode.NOT_COMPARED
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
def diff_command(ctx: click.Context, /, *, client: Client, files: tuple[str, ...], output: str) -> None:
    """Show what applying a manifest would change: fields and pods.

    Nothing is changed. The exit codes are those of `kubectl diff`: 0 no difference, 1 a difference, 2 the comparison
    failed.
    """
    from tfcluster.manifest.files import read_clusters
    from tfcluster.preview.diff import edit_of

    manifests = read_clusters(files)
    edits = [edit_of(client.api, manifest) for manifest in manifests.clusters]
    if manifests.others:
        kinds = ", ".join(sorted({one.kind or "objects without a kind" for one in manifests.others}))
        say(f"{kinds}: not compared, `kubectl diff` does that.")
    if output == "table":
        for edit in edits:
            for line in _lines(edit):
                console().print(line)
    else:
        data({"clusters": [_edit_document(edit) for edit in edits]}, output)
    if any(edit.differs for edit in edits):
        ctx.exit(ExitCode.DIFFERS)


#: By what is done: the sign of a line, its style, and the word for it.
_SIGNS: Final = {
    "create": ("+", "good", "created"),
    "replace": ("~", "waiting", "replaced"),
    "delete": ("-", "bad", "deleted"),
    "keep": (" ", "off", "of an older template"),
}


def _lines(edit: Edit) -> Iterator[Text]:
    where = f"{edit.namespace}/{edit.name}"
    change = f"{count(len(edit.fields), 'field')} would change" if edit.fields else "nothing differs"
    yield styled(f"{where}: {change}" if edit.exists else f"{where} is new", "name")
    for field in edit.fields:
        before, after = ("nothing" if one is None else brief(one, 80) for one in (field.before, field.after))
        yield _line("~", "waiting", f"{field.path}: {before} -> {after}")
    for pods in edit.pods:
        sign, style, done = _SIGNS[pods.what]
        runs = runs_of(sorted((pods.job, index) for index in pods.tasks))
        tasks = ", ".join(spell(job, start, stop - 1) for job, start, stop in runs)
        are = "is" if len(pods.tasks) == 1 else "are"
        yield _line(sign, style, f"{tasks} {are} {done}" + (f": {pods.words}" if pods.words else ""))
    for note in edit.notes:
        yield _line("!", "bad", note)


def _line(sign: str, style: str, words: str) -> Text:
    return styled(f"  {sign} ", style).append(words, style="")


def _edit_document(edit: Edit) -> dict[str, Any]:
    document = asdict(edit)
    for pods in document["pods"]:
        pods["tasks"] = [spell(pods["job"], index) for index in pods["tasks"]]
    return {"differs": edit.differs, **document}


@click.command()
@click.argument("name", type=ClusterName(), required=False)
@click.option("-f", "--filename", "files", multiple=True, type=click.Path(allow_dash=True), help="A manifest instead.")
@options.place_if_needed
@options.output("table", "json", "yaml")
@options.examples("""
    $ tfcluster matrix digits
    $ tfcluster matrix -f digits.yaml
""")
def matrix_command(
    *, connect: Callable[[], Client], namespace: str | None, name: str | None, files: tuple[str, ...], output: str
) -> None:
    """Show which tasks see each other, by device filter and network policy.

    This is the whole cluster as its spec has it. In a pod, `python -m tfcluster_resolver show` prints what that task
    sees now.
    """
    from tfcluster import visibility
    from tfcluster.manifest.files import Manifest, read
    from tfcluster.manifest.validate import declare
    from tfcluster.manifest.validate import read as read_body
    from tfcluster_operator.life.views import whole_view
    from tfcluster_resolver.cluster import Membership

    if bool(name) == bool(files):
        raise click.UsageError("name a TFCluster, or a manifest with -f")
    if files:
        cluster = declare(read(files).only(), namespace or "default")
    else:
        with connect() as client:
            body = client.get(str(name))
        cluster = read_body(Manifest(body, "the API server", 0), body)
    membership = Membership(view=whole_view(cluster), own=None)
    if output != "table":
        data({**visibility.as_document(membership), "notes": [*_notes(cluster)]}, output)
        return
    click.echo(visibility.as_text(membership))
    click.echo("\n".join(_notes(cluster)))


_ISOLATION: Final = {
    "None": "No isolation: every pod in the network can reach every task.",
    "Cluster": "Isolation Cluster: only pods of this cluster can reach a task.",
    "DeviceFilters": "Isolation DeviceFilters: tasks can reach each other if one sees the other.",
}


def _notes(cluster: TFCluster) -> Iterator[str]:
    from tfcluster_operator.declaration.spec import EVALUATOR

    evaluator = cluster.job(EVALUATOR)
    if evaluator is not None:
        seen = f"sees what {', '.join(evaluator.filters)} show" if evaluator.filters else "sees every task"
        yield f"The evaluator {seen}, and no task sees it: it is in no ClusterSpec."
    yield _ISOLATION[cluster.isolation.mode]
    if cluster.isolation.mode != "None" and cluster.isolation.allow_from:
        yield "spec.isolation.allowFrom also allows others."
