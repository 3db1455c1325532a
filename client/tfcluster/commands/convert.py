"""``tfcluster convert``: from TFJobs to TFClusters."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
from rich.text import Text

from tfcluster.commands import output
from tfcluster.commands.options import api_of, examples, kubernetes
from tfcluster.convert.check import Comparison, compare
from tfcluster.convert.conversion import Conversion, Stream, convert, convert_text
from tfcluster.convert.tfjob import Outcome, Verdict
from tfcluster.errors import ExitCode, ManifestError
from tfcluster.kube.api import TFJOBS
from tfcluster.manifest.files import texts
from tfcluster.terminal import few, spelled
from tfcluster_operator.declaration import naming

#: The headings, and the style of each; unchanged fields are only counted.
_HEADINGS: Final = {
    Outcome.REJECTED: ("Rejected", "bad"),
    Outcome.LOSSY: ("Lost, and what to do", "waiting"),
    Outcome.NOTED: ("To know", "name"),
    Outcome.EXPLICIT: ("Written out, because the default of a TFCluster is another", "name"),
}


@click.command(short_help="Convert Kubeflow's TFJobs to TFClusters.")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="A file, a folder, or - (stdin).")
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
    problems: list[str] = []
    found = [pair for file in files for pair in texts(file, problems)]
    if problems:
        raise ManifestError("the manifest cannot be read:", problems)
    streams = [(name, convert_text(text, name)) for name, text in found]
    if names:
        api = api_of(**place)
        for name in names:
            conversion = convert(api.get(TFJOBS, name))
            streams.append((api.server, Stream((conversion.cluster,), (conversion,))))
    if not any(stream.conversions for _, stream in streams):
        hint = "Name a file with an object of kind TFJob, or - for standard input, or --from-cluster NAME."
        raise ManifestError("no TFJob found", hint=hint)
    proved = [_report(one, name, check=check, quiet=quiet) for name, stream in streams for one in stream.conversions]
    for name in names:
        output.say(f"Before you apply it: kubectl delete tfjob {name}. The pods of both have the same names.")
    outcomes = {one.outcome for _, stream in streams for job in stream.conversions for one in job.verdicts}
    if Outcome.REJECTED in outcomes or not all(proved):
        ctx.exit(ExitCode.FAILED)
    click.echo("---\n".join(stream.text for _, stream in streams), nl=False)
    ctx.exit(ExitCode.LOSSY if Outcome.LOSSY in outcomes else ExitCode.OK)


def _report(conversion: Conversion, name: str, *, check: bool, quiet: bool) -> bool:
    """Print the report on a TFJob; return False if --check finds a difference."""
    lines, proves = [*_lines(conversion, name, quiet=quiet)], True
    if check and conversion.cluster is not None:
        comparison = compare(conversion.job, conversion.cluster)
        lines, proves = [*lines, *_checked(comparison)], comparison.proves
    for line in lines:
        output.console(err=True).print(line)
    return proves


def _lines(conversion: Conversion, name: str, *, quiet: bool) -> Iterator[Text]:
    grave = (Outcome.REJECTED, Outcome.LOSSY)
    if quiet and not conversion.of(*grave):
        return
    result = f"{naming.KIND} {conversion.job.name}" if conversion.cluster is not None else "nothing"
    yield output.styled(f"{name}: TFJob {conversion.job.name} → {result}", "name")
    for outcome, (heading, style) in _HEADINGS.items():
        # If a field is rejected, only the rejections matter: the manifest must change first.
        if (quiet or conversion.cluster is None) and outcome not in grave:
            continue
        if told := list(_grouped(conversion.of(outcome))):
            yield output.styled(f"  {heading}:", style)
            yield from (output.styled(f"    {words}") for words in told)
    if quiet or conversion.cluster is None:
        return
    if left_out := conversion.of(Outcome.LEFT_OUT):
        yield output.styled(f"  Left out without a loss: {', '.join(spelled(one.path) for one in left_out)}.")
    yield output.styled(f"  Carried over as they are: {len(conversion.of(Outcome.SAME))} fields.")


def _checked(comparison: Comparison) -> Iterator[Text]:
    told, proves = f"{comparison.replicas} replicas find the same ClusterSpec", comparison.proves
    if not comparison.told:
        told = "neither sets TF_CONFIG, since there is a single replica"
    yield output.styled(f"  Check: {told if proves else 'TF_CONFIG would differ'}.", "good" if proves else "bad")
    groups: dict[tuple[str, str], list[str]] = {}
    for one in comparison.differences:
        groups.setdefault((one.words, one.wanted), []).append(one.task)
    for (words, wanted), tasks in groups.items():
        yield output.styled(f"    {few(tasks, 4)}: {words}" + (f": wanted ({wanted})" if wanted else ""))


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
