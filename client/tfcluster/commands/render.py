"""``tfcluster render``: every object and every task's view, offline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfcluster.commands import names, options
from tfcluster.commands.output import data, say, write_file
from tfcluster.errors import ManifestError

if TYPE_CHECKING:
    from tfcluster.rendering import TaskView


@click.command()
@options.files
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace of what names none.")
@options.output("yaml", "json")
@click.option("--views", is_flag=True, help="Print what each task sees instead of objects.")
@click.option("--task", type=names.TaskName(), help="Print one task's pod and view alone.")
@click.option("--resolver", is_flag=True, help="Print the ConfigMap that delivers the resolver, too.")
@click.option("--output-dir", type=click.Path(file_okay=False, path_type=Path), help="Write a file for each object.")
@options.examples("""
    $ tfcluster render -f digits.yaml
    $ tfcluster render -f digits.yaml --views --task worker-0
    $ tfcluster render -f digits.yaml --output-dir objects
""")
def command(
    *,
    files: tuple[str, ...],
    namespace: str,
    output: str,
    views: bool,
    task: str | None,
    resolver: bool,
    output_dir: Path | None,
) -> None:
    """Print what the operator would make of a TFCluster: every object, and what each task sees.

    Nothing is asked of a cluster. What only a cluster can give is marked: <uid> stands for the UID that the API server
    gives the TFCluster, and epochs and digests are those of a new one.
    """
    from tfcluster import manifest_files
    from tfcluster.declared import declare
    from tfcluster.rendering import only_of, render

    documents: list[dict[str, Any]] = []
    told: set[tuple[str, str]] = set()
    for manifest in manifest_files.read_clusters(files).clusters:
        declared = declare(manifest, namespace)
        rendered = render(declared)
        for note in rendered.notes:
            say(f"{manifest.name}: {note}.")
        if task is not None:
            rendered = only_of(rendered, declared.cluster, task)
        if not views:
            copy = (declared.cluster.namespace, rendered.resolver)
            shown = [one for one in rendered.objects if one["metadata"]["name"] != rendered.resolver]
            if copy not in told and len(shown) < len(rendered.objects):
                # All clusters of a namespace share it.
                told.add(copy)
                if resolver:
                    shown = [*rendered.objects]
                else:
                    say(
                        f"{manifest.name}: the ConfigMap {rendered.resolver} is left out; --resolver prints it. "
                        "An operator of another version makes one of its own."
                    )
            documents += shown
        if views or task is not None:
            documents += [_as_document(declared.cluster.name, one) for one in rendered.views]
    if output_dir is not None:
        _write(documents, output_dir, output)
    elif output == "json":
        data(documents[0] if task is not None and len(documents) == 1 else _listed(documents, views=views), "json")
    else:
        click.echo("".join(_as_yaml(document) for document in documents), nl=False)


def _as_document(cluster: str, seen: TaskView) -> dict[str, Any]:
    from tfcluster.task_names import spell
    from tfcluster_resolver import contract

    tasks = [spell(seen.job, index) for index in seen.tasks]
    return {"cluster": cluster, "tasks": tasks, "file": seen.file, "view": json.loads(contract.dump(seen.view))}


def _listed(documents: list[dict[str, Any]], *, views: bool) -> Mapping[str, Any]:
    if views:
        return {"views": documents}
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def _as_yaml(document: Mapping[str, Any]) -> str:
    from tfcluster import yaml_writing

    return "---\n" + yaml_writing.write(document, width=120)


def _write(documents: list[dict[str, Any]], folder: Path, output: str) -> None:
    found = [*_names(documents)]
    if twice := sorted(name for name, number in Counter(found).items() if number > 1):
        raise ManifestError("two objects would be one file; render them one by one, or rename a TFCluster:", twice)
    for name, document in zip(found, documents, strict=True):
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n" if output == "json" else _as_yaml(document)
        write_file(folder / f"{name}.{output}", text)
    say(f"{len(found)} files are in {folder}.")


def _names(documents: list[dict[str, Any]]) -> Iterator[str]:
    namespaces = [(document.get("metadata") or document["view"]["cluster"])["namespace"] for document in documents]
    several = len({*namespaces}) > 1
    for document, namespace in zip(documents, namespaces, strict=True):
        if "kind" in document:
            stem = f"{document['kind'].lower()}-{document['metadata']['name']}"
        else:
            stem = f"view-{document['cluster']}-{document['tasks'][0]}"
        yield f"{namespace}-{stem}" if several else stem
