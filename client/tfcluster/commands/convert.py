"""``tfcluster convert``: from TFJobs to TFClusters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from tfcluster import exit_codes
from tfcluster.commands import output
from tfcluster.commands.options import api_of, examples
from tfcluster.convert import report
from tfcluster.convert.check import compare
from tfcluster.convert.documents import Stream, convert_object, convert_text
from tfcluster.convert.verdicts import Outcome
from tfcluster.errors import ManifestError
from tfcluster.kubernetes_api import TFJOBS

_STDIN: Final = "-"
_REMOVE_FIRST: Final = (
    "Before you apply it: kubectl delete tfjob {name}. The pods of both have the same names, and the TFCluster begins "
    "from the start or from the program's last checkpoint."
)


@click.command(short_help="Make TFClusters of Kubeflow's TFJobs.")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="A file, or - for standard input.")
@click.option("--from-cluster", "names", multiple=True, metavar="NAME", help="A TFJob that there is in Kubernetes.")
@click.option("--check", is_flag=True, help="Prove that both tell each replica the same by TF_CONFIG.")
@click.option("--quiet", "-q", is_flag=True, help="Report nothing but what is lost or refused.")
@click.option("-n", "--namespace", help="The namespace for --from-cluster.  [default: the context's]")
@click.option("--context", help="The context in the kubeconfig.  [default: the current one]")
@click.option("--kubeconfig", type=click.Path(), help="The kubeconfig file.  [default: as kubectl has it]")
@examples("""
$ tfcluster convert -f tfjob.yaml
$ tfcluster convert -f tfjob.yaml --check -q
""")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    names: tuple[str, ...],
    check: bool,
    quiet: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Make TFClusters of TFJobs (kubeflow.org/v1, v1beta2, v1beta1, v1alpha2).

    The manifests go to stdout, with their comments and all other objects of the files. The report goes to stderr. The
    exit code is 0 if nothing is lost, 3 if what the report names is lost, and 1 if a TFJob is refused or --check finds
    a difference; nothing is printed then.
    """
    if not files and not names:
        raise click.UsageError("name a file with -f FILE (- is standard input), or a TFJob with --from-cluster NAME")
    streams = [(_shown(file), convert_text(_read(file), _shown(file))) for file in files]
    if names:
        api = api_of(namespace=namespace, context=context, kubeconfig=kubeconfig)
        streams += [(api.server, convert_object(api.get(TFJOBS, name))) for name in names]
    proved = True
    for name, stream in streams:
        _tell(stream, name, quiet=quiet)
        proved = _check(stream) and proved if check else proved
    for name in names:
        output.say(_REMOVE_FIRST.format(name=name))
    outcomes = {one.outcome for _, stream in streams for found in stream.conversions for one in found.verdicts}
    if Outcome.REFUSED in outcomes or not proved:
        ctx.exit(exit_codes.FAILED)
    # NB: a file may begin without a separator, and end without a line end.
    texts = [stream.text if stream.text.endswith("\n") else f"{stream.text}\n" for _, stream in streams]
    click.echo(texts[0] + "".join(text if text.startswith("---") else f"---\n{text}" for text in texts[1:]), nl=False)
    lost = Outcome.LOSSY in outcomes or any(stream.beside for _, stream in streams)
    ctx.exit(exit_codes.LOSSY if lost else exit_codes.OK)


def _shown(file: str) -> str:
    return "standard input" if file == _STDIN else file


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise ManifestError(
            f"{file}: {error.strerror}", hint="Name a file with -f, or - for standard input."
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{_shown(file)} is no text in UTF-8", hint="Save it as UTF-8 first.") from error


def _tell(stream: Stream, name: str, *, quiet: bool) -> None:
    for line in report.lines(stream, name, quiet=quiet):
        output.console(err=True).print(output.styled(line.text, line.style))


def _check(stream: Stream) -> bool:
    proved = True
    for conversion in stream.conversions:
        if conversion.cluster is None:
            continue
        comparison = compare(conversion.job, conversion.cluster)
        proved = comparison.proves and proved
        for line in report.checked(comparison):
            output.console(err=True).print(output.styled(line.text, line.style))
    return proved
