"""The options that many commands share: which cluster of Kubernetes, which namespace, how data is printed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

if TYPE_CHECKING:
    # NB: it takes half a second, and what renders, converts or plays a manifest asks no API server.
    from tfcluster.kubernetes_api import KubernetesApi

_Function = TypeVar("_Function", bound=Callable[..., Any])

Format = Literal["table", "json", "yaml"]


#: The options that say which API server and namespace.
_PLACE: Final = ("namespace", "context", "kubeconfig", "local", "session")


def place(function: _Function) -> _Function:
    """Add the options that say which API server and namespace; the command gets ``client``, a Client."""

    def with_client(**arguments: Any) -> Any:
        from tfcluster.client import Client

        chosen = {name: arguments.pop(name) for name in _PLACE}
        with Client(api_of(**chosen)) as client:
            return function(client=client, **arguments)

    return _with_place(function, with_client)


def place_if_needed(function: _Function) -> _Function:
    """Add the same options to a command that may need no API server.

    The command gets ``connect``, which gives a Client, to be closed, and ``namespace``, None where it is not said.
    """

    def with_connect(**arguments: Any) -> Any:
        from tfcluster.client import Client

        chosen = {name: arguments.pop(name) for name in _PLACE}
        return function(connect=lambda: Client(api_of(**chosen)), namespace=chosen["namespace"], **arguments)

    return _with_place(function, with_connect)


def _with_place(function: _Function, wrapped: Any) -> _Function:
    wrapped.__name__ = function.__name__
    wrapped.__doc__ = function.__doc__
    # NB: options and arguments that were declared below this decorator move with it.
    wrapped.__click_params__ = getattr(function, "__click_params__", [])
    found = wrapped
    for option in (
        click.option("--session", metavar="NAME", help="Which `tfcluster local run`, if several run."),
        click.option("--local", is_flag=True, help="Work on `tfcluster local run` on this machine."),
        click.option("--kubeconfig", type=click.Path(), help="The kubeconfig file.  [default: as kubectl has it]"),
        click.option("--context", help="The context in the kubeconfig.  [default: the current one]"),
        click.option("-n", "--namespace", help="The namespace.  [default: the context's]"),
    ):
        found = option(found)
    return found  # type: ignore[no-any-return]  # click's decorators keep the function


def api_of(
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    local: bool = False,
    session: str | None = None,
) -> KubernetesApi:
    """Connect to what the options name.

    Raises:
        UsageError: options that exclude each other.
        UnreachableError: there are no credentials, or nothing runs on this machine.
    """
    if local or session:
        if context or kubeconfig:
            raise click.UsageError("--local works on this machine: leave out --context and --kubeconfig")
        from tfcluster.local.session import kubeconfig_of

        kubeconfig = str(kubeconfig_of(session))
    from tfcluster.kubernetes_api import KubernetesApi

    return KubernetesApi.connect(kubeconfig=kubeconfig, context=context, namespace=namespace)


def files(function: _Function) -> _Function:
    """Add ``-f``, which must be given once at least; the command gets ``files``, a tuple of paths."""
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=True,
        type=click.Path(allow_dash=True),
        help="A manifest: a file, a folder, or - for the standard input.  Can be given several times.",
    )(function)


class _Seconds(click.ParamType[float]):
    """A length of time as users write it: 90, 90s, 10m, 1h30m."""

    name = "duration"
    _units: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
    #: A hundred years; the system's clocks go not much further.
    _longest: Final = 100 * 365 * 86_400.0

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value)
        parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text)
        if re.fullmatch(r"\d+(?:\.\d+)?", text):
            parts = [(text, "s")]
        elif not parts or "".join(number + unit for number, unit in parts) != text:
            raise click.BadParameter(f"{text} is not a duration: write 90s, 10m or 1h30m", ctx, param)
        found = sum(float(number) * self._units[unit] for number, unit in parts)
        if found > self._longest:
            raise click.BadParameter(f"{text} is longer than a hundred years: write a shorter time", ctx, param)
        return found


#: The type of options that are a length of time; the value is in seconds.
seconds: Final = _Seconds()


def output(*formats: Format) -> Callable[[_Function], _Function]:
    """Add ``-o``; the command gets ``output``, one of these formats, by default the first."""
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="How to print."
    )


def examples(text: str) -> Callable[[_Function], _Function]:
    """Add examples to the end of a command's help; a test runs each line that begins with ``$ ``.

    Args:
        text: the lines.
    """

    def with_examples(function: _Function) -> _Function:
        block = "\n".join(f"  {line.strip()}" for line in text.strip().splitlines())
        # NB: \b tells click to leave the lines as they are.
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExamples:\n{block}"
        return function

    return with_examples
