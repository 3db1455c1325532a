"""``tfcluster convert``: from TFJobs to TFClusters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from tfcluster.commands import output
from tfcluster.commands.options import api_of, examples, kubernetes
from tfcluster.convert import report
from tfcluster.convert.check import compare
from tfcluster.convert.documents import Stream, convert_object, convert_text
from tfcluster.convert.tfjob import Outcome
from tfcluster.errors import ExitCode, ManifestError
from tfcluster.kube.api import TFJOBS

_STDIN: Final = "-"
_REMOVE_FIRST: Final = (
    "Before you apply it: kubectl delete tfjob {name}. The pods of both have the same names, and the TFCluster begins "
    "from the start or from the program's last checkpoint."
)


@click.command(short_help="Convert Kubeflow's TFJobs to TFClusters.")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="A file, or - for standard input.")
@click.option("--from-cluster", "names", multiple=True, metavar="NAME", help="Convert a TFJob from Kubernetes.")
@click.option("--check", is_flag=True, help="Verify that TF_CONFIG is the same for every replica.")
@click.option("--quiet", "-q", is_flag=True, help="Report only what is lost or rejected.")
@kubernetes
@examples("""
$ tfcluster convert -f tfjob.yaml
$ tfcluster convert -f tfjob.yaml --check -q > tfcluster.yaml
""")
@click.pass_context
def convert_command(
    ctx: click.Context, /, *, files: tuple[str, ...], names: tuple[str, ...], check: bool, quiet: bool, **place: Any
) -> None:
    """Convert TFJobs (kubeflow.org/v1, v1beta2, v1beta1, v1alpha2) to TFClusters.

    The manifests go to stdout, with all other objects of the files, which are not changed. The report goes to stderr.
    The exit code is 0 if nothing is lost, 3 if something is lost (see the report), and 1 if a TFJob is rejected or
    --check finds a difference; in that case nothing is printed.
    """
    if not files and not names:
        raise click.UsageError("name a file with -f FILE (- is standard input), or a TFJob with --from-cluster NAME")
    streams = [(_shown(file), convert_text(_read(file), _shown(file))) for file in files]
    if names:
        api = api_of(**place)
        streams += [(api.server, convert_object(api.get(TFJOBS, name))) for name in names]
    proved = True
    for name, stream in streams:
        _tell(report.lines(stream, name, quiet=quiet))
        proved = _check(stream) and proved if check else proved
    for name in names:
        output.say(_REMOVE_FIRST.format(name=name))
    outcomes = {one.outcome for _, stream in streams for found in stream.conversions for one in found.verdicts}
    if Outcome.REJECTED in outcomes or not proved:
        ctx.exit(ExitCode.FAILED)
    # A file can begin without a separator and end without a newline.
    texts = [stream.text if stream.text.endswith("\n") else f"{stream.text}\n" for _, stream in streams]
    click.echo(texts[0] + "".join(text if text.startswith("---") else f"---\n{text}" for text in texts[1:]), nl=False)
    lost = Outcome.LOSSY in outcomes or any(stream.beside for _, stream in streams)
    ctx.exit(ExitCode.LOSSY if lost else ExitCode.OK)


def _shown(file: str) -> str:
    return "standard input" if file == _STDIN else file


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        hint = "Name a file with -f, or - for standard input."
        raise ManifestError(f"{file}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{_shown(file)} is not UTF-8 text", hint="Save it as UTF-8 first.") from error


def _tell(lines: Iterator[report.Line]) -> None:
    for line in lines:
        output.console(err=True).print(output.styled(line.text, line.style))


def _check(stream: Stream) -> bool:
    found = [compare(one.job, one.cluster) for one in stream.conversions if one.cluster is not None]
    for comparison in found:
        _tell(report.checked(comparison))
    return all(comparison.proves for comparison in found)
