"""Options and arguments that many commands share; shell completion asks the API server for names.

Completion must not block the shell: it waits briefly, and returns no candidates after an error.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from click.shell_completion import CompletionItem

from tfcluster.tasks import declared, names_one, spell

if TYPE_CHECKING:
    from tfcluster.client import Client
    from tfcluster.kube.api import KubernetesApi

_Function = TypeVar("_Function", bound=Callable[..., Any])

Format = Literal["table", "json", "yaml"]

_PLACE: Final = ("namespace", "context", "kubeconfig", "local", "session")


def place(function: _Function) -> _Function:
    """Add the options that say which API server and namespace; the command gets ``client``, a Client."""

    @functools.wraps(function)  # it keeps the options and arguments that are declared below the decorator
    def with_client(*, connect: Callable[[], Client], namespace: str | None, **arguments: Any) -> Any:
        del namespace
        with connect() as client:
            return function(client=client, **arguments)

    return place_if_needed(with_client)  # type: ignore[return-value]  # click's decorators keep the function


def place_if_needed(function: _Function) -> _Function:
    """Add the same options to a command that does not always need an API server.

    The command gets ``connect``, which returns a Client that must be closed, and ``namespace``, or None.
    """

    @functools.wraps(function)
    def with_connect(**arguments: Any) -> Any:
        from tfcluster.client import Client

        chosen = {name: arguments.pop(name) for name in _PLACE}
        return function(connect=lambda: Client(api_of(**chosen)), namespace=chosen["namespace"], **arguments)

    session = click.option("--session", metavar="NAME", help="Which `tfcluster local run`, if there are several.")
    local = click.option("--local", is_flag=True, help="Work on `tfcluster local run` on this machine.")
    return kubernetes(local(session(with_connect)))  # type: ignore[return-value]  # likewise


def kubernetes(function: _Function) -> _Function:
    """Add the options that kubectl has, too: ``-n``, ``--context`` and ``--kubeconfig``."""
    for option in (
        click.option("--kubeconfig", type=click.Path(), help="The kubeconfig file.  [default: as kubectl has it]"),
        click.option("--context", help="The context in the kubeconfig.  [default: the current one]"),
        click.option("-n", "--namespace", help="The namespace.  [default: the context's]"),
    ):
        function = option(function)
    return function


def api_of(
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    local: bool = False,
    session: str | None = None,
) -> KubernetesApi:
    if local or session:
        if context or kubeconfig:
            raise click.UsageError("--local works on this machine: leave out --context and --kubeconfig")
        from tfcluster.local.session import kubeconfig_of

        kubeconfig = str(kubeconfig_of(session))
    from tfcluster.kube.api import KubernetesApi

    return KubernetesApi.connect(kubeconfig=kubeconfig, context=context, namespace=namespace)


#: ``-f``, which must be given once at least; the command gets ``files``, a tuple of paths.
files: Final = click.option(
    *("-f", "--filename", "files"),
    multiple=True,
    required=True,
    type=click.Path(allow_dash=True),
    help="A manifest: a file, a folder, or - for standard input (repeatable).",
)


class _Seconds(click.ParamType[float]):
    """A length of time as users write it: 90, 90s, 10m, 1h30m."""

    name = "duration"
    _units: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "": 1.0}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        number = r"\d+(?:\.\d+)?"
        if not re.fullmatch(f"{number}|(?:{number}[dhms])+", value):
            raise click.BadParameter(f"{value} is not a duration: write, for example, 90s, 10m or 1h30m", ctx, param)
        parts = re.findall(f"({number})([dhms]?)", value)
        # A hundred years: the system's clocks do not support much more.
        return min(sum(float(text) * self._units[unit] for text, unit in parts), 100 * 365 * 86_400.0)


#: The type of options that are a length of time; the value is in seconds.
seconds: Final = _Seconds()


def output(*formats: Format) -> Callable[[_Function], _Function]:
    """Add ``-o``; the command gets ``output``, one of these formats, by default the first."""
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="The output format."
    )


def examples(text: str) -> Callable[[_Function], _Function]:
    """Add examples to the end of a command's help; a test runs each line that begins with ``$ ``."""

    def with_examples(function: _Function) -> _Function:
        block = "\n".join(f"  {line.strip()}" for line in text.strip().splitlines())
        # After \b click does not wrap the lines.
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExamples:\n{block}"
        return function

    return with_examples


_Found = TypeVar("_Found")

_PATIENCE: Final = 2.0
_MOST_TASKS: Final = 200


class ClusterName(click.ParamType[str]):
    """The name of a TFCluster."""

    name = "NAME"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del param
        names = _soon(ctx, lambda client: sorted(one["metadata"]["name"] for one in client.list()))
        return [CompletionItem(one) for one in names or () if one.startswith(incomplete)]


class TaskName(click.ParamType[str]):
    """A task, such as ``worker-0``, of the TFCluster in ``name``."""

    def __init__(self, *, jobs: bool = False) -> None:
        self._jobs = jobs
        self.name = "JOB[-INDEX]" if jobs else "JOB-INDEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = str(value)
        if names_one(word) or (self._jobs and word and "/" not in word):
            return word
        wanted = "a job and an index, such as worker-0" + (", or a job" if self._jobs else "")
        return self.fail(f"write {wanted}, not {value}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del param
        replicas = _soon(ctx, lambda client: declared(client.get(ctx.params["name"]))) or {}
        tasks = [spell(job, index) for job in sorted(replicas) for index in range(replicas[job])]
        words = [*sorted(replicas), *tasks] if self._jobs else tasks
        return [CompletionItem(one) for one in words if one.startswith(incomplete)][:_MOST_TASKS]


def _soon(ctx: click.Context, ask: Callable[[Client], _Found]) -> _Found | None:
    """Return an answer if it comes soon; None after an error or a time-out."""
    answers: list[_Found] = []

    def answer() -> None:
        from tfcluster.client import Client

        with contextlib.suppress(Exception):  # an error message would disturb the shell during completion
            chosen = {name: ctx.params[name] for name in _PLACE if ctx.params.get(name)}
            with Client(api_of(**chosen)) as client:
                answers.append(ask(client))

    # A credential plug-in of the kubeconfig can hang, and the time-out of a request does not cover that.
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return answers[0] if answers else None
