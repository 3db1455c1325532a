"""Names on the command line, of TFClusters and of tasks; a shell completes them by asking the API server.

NB: what completes must never be in the way: it waits a moment at the most, and an error completes nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from tfcluster.task_names import names_one, spell

_Found = TypeVar("_Found")

#: How long (seconds) a shell waits.
_PATIENCE: Final = 2.0
#: More than that nobody reads.
_MOST_TASKS: Final = 200


class ClusterName(click.ParamType[str]):
    """The name of a TFCluster."""

    name = "NAME"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Give the names that begin so."""
        del param
        return [CompletionItem(one) for one in _soon(lambda: _clusters(ctx)) or () if one.startswith(incomplete)]


class TaskName(click.ParamType[str]):
    """A task as JOB-INDEX or JOB/INDEX, such as ``worker-0``; the command gets the word.

    It completes the tasks of the TFCluster in the argument ``name``, or of the manifests in the option ``files``.

    Args:
        jobs: whether JOB alone is taken, too.
    """

    name = "JOB-INDEX"

    def __init__(self, *, jobs: bool = False) -> None:
        self._jobs = jobs
        self.name = "JOB[-INDEX]" if jobs else "JOB-INDEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read what was typed; fails as click does."""
        word = str(value)
        if names_one(word) or (self._jobs and word and "/" not in word):
            return word
        wanted = "a job and an index, such as worker-0" + (", or a job" if self._jobs else "")
        return self.fail(f"write {wanted}, not {value}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Give the tasks, and jobs, that begin so."""
        del param
        replicas = _soon(lambda: _replicas(ctx)) or {}
        found = [one for one in _spellings(replicas, jobs=self._jobs) if one.startswith(incomplete)]
        return [CompletionItem(one) for one in found[:_MOST_TASKS]]


def _spellings(replicas: Mapping[str, int], *, jobs: bool) -> Iterator[str]:
    if jobs:
        yield from sorted(replicas)
    for job in sorted(replicas):
        yield from (spell(job, index) for index in range(replicas[job]))


def _soon(ask: Callable[[], _Found]) -> _Found | None:
    """Give an answer that comes soon, and None where there is an error or none comes."""
    answers: list[_Found] = []

    def answer() -> None:
        with contextlib.suppress(Exception):  # whatever it is, a shell that completes is no place to tell it
            answers.append(ask())

    # NB: a credential plug-in of the kubeconfig may hang; no time-out of a request helps against that.
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return answers[0] if answers else None


def _clusters(ctx: click.Context) -> list[str]:
    with _client(ctx) as client:
        return sorted(one["metadata"]["name"] for one in client.list())


def _replicas(ctx: click.Context) -> Mapping[str, int]:
    if files := ctx.params.get("files"):
        from tfcluster import manifest_files

        bodies = [one.body for one in manifest_files.read(files).clusters]
    elif name := ctx.params.get("name"):
        with _client(ctx) as client:
            bodies = [client.get(name)]
    else:
        return {}
    return {job: int(fields.get("replicas", 1)) for body in bodies for job, fields in body["spec"]["jobs"].items()}


def _client(ctx: click.Context) -> Any:
    from tfcluster.client import Client
    from tfcluster.commands.options import api_of

    chosen = ("namespace", "context", "kubeconfig", "local", "session")
    return Client(api_of(**{name: ctx.params[name] for name in chosen if ctx.params.get(name)}))
