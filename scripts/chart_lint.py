"""`make lint-chart`: lint the chart, rendered with three sets of values, and the Dockerfiles with three linters.

kubernetes-validate compares every object with Kubernetes' own schemas, checkov checks good practice, hadolint checks
the Dockerfiles.  Findings are errors unless charts/lint-exceptions.yaml excepts them, each with its reason; an
exception without a finding is an error, too.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "charts" / "tfcluster-operator"
EXCEPTIONS: Final = ROOT / "charts" / "lint-exceptions.yaml"
DOCKERFILES: Final = (ROOT / "Dockerfile", ROOT / "images" / "training.Dockerfile")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of checkov: the check, the object, and the set of values."""

    check: str
    title: str
    resource: str
    values: str

    def __str__(self) -> str:
        return f"{self.check} of {self.resource} with {self.values} values: {self.title}"


@dataclass(frozen=True, slots=True)
class Exempted:
    """An exception: one check for the objects whose name (Kind.namespace.name) matches, and the reason."""

    check: str
    resources: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return whether it excepts a finding."""
        return finding.check == self.check and re.fullmatch(self.resources, finding.resource) is not None


def read_exceptions(text: str) -> list[Exempted]:
    """Read the file of exceptions.

    Raises:
        SystemExit: an exception does not have a reason.
    """
    found = [Exempted(**entry) for entry in yaml.safe_load(text)]
    if silent := [each.check for each in found if not each.reason.strip()]:
        raise SystemExit(f"{EXCEPTIONS.name}: no reason is given for {', '.join(silent)}")
    return found


def judge(findings: Sequence[Finding], exceptions: Iterable[Exempted]) -> list[str]:
    """Compare the findings with the exceptions.

    Returns:
        An error for each finding that is not excepted, and for each exception without a finding.
    """
    exceptions = list(exceptions)
    complaints = [str(found) for found in findings if not any(each.covers(found) for each in exceptions)]
    return complaints + [
        f"{EXCEPTIONS.name}: {each.check} of {each.resources} excepts nothing: remove it"
        for each in exceptions
        if not any(each.covers(found) for found in findings)
    ]


def render(helm: Path, folder: Path, sets: Mapping[str, Mapping[str, Any]]) -> dict[str, Path]:
    """Render the chart once for each set of values.

    Returns:
        The files by the name of the set.
    """
    files = {}
    for name, values in sets.items():
        command = [str(helm), "template", "r", str(CHART), "--namespace", "home", "--values", "-"]
        rendered = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
        if rendered.returncode:
            raise SystemExit(f"the chart cannot be rendered with {name} values: {rendered.stderr}")
        files[name] = folder / f"{name}.yaml"
        files[name].write_text(rendered.stdout, encoding="utf-8")
    return files


def ask_checkov(program: Path, files: Mapping[str, Path]) -> list[Finding]:
    """Run checkov on rendered objects.

    Raises:
        SystemExit: its output cannot be parsed, or it could not read a file.
    """
    command = [str(program), "--framework", "kubernetes", "--output", "json", "--quiet"]
    for path in files.values():
        command += ["--file", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(said.stdout)
        results, summary = report["results"], report["summary"]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"checkov said: {said.stdout[-2000:]} {said.stderr[-2000:]}") from error
    # checkov does not report findings for a file that it cannot read.
    if summary["parsing_errors"] or not summary["passed"]:
        raise SystemExit(f"checkov could not read what the chart renders: {summary}")
    return [
        Finding(found["check_id"], found["check_name"], found["resource"], Path(found["file_path"]).stem)
        for found in results["failed_checks"]
    ]


def ask(*command: str | Path) -> list[str]:
    """Run a linter that only prints its findings."""
    said = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    return [] if said.returncode == 0 else [said.stdout + said.stderr]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the linters."""
    from local_kubernetes import binaries  # noqa: PLC0415 - it may build helm

    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "chart")]
    import value_sets  # noqa: PLC0415 - what the chart's tests install

    parser = argparse.ArgumentParser(prog="scripts/chart_lint.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tools", type=Path, help="the folder with kubernetes-validate, checkov and hadolint")
    tools: Path = parser.parse_args(arguments).tools
    sets = {"default": value_sets.DEFAULT, "everything": value_sets.EVERYTHING, "minimal": value_sets.MINIMAL}
    complaints: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        files = render(binaries.helm(), Path(folder), sets)
        complaints += ask(tools / "kubernetes-validate", "--strict", "--quiet", *files.values())
        exceptions = read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
        complaints += judge(ask_checkov(tools / "checkov", files), exceptions)
    for dockerfile in DOCKERFILES:
        complaints += ask(tools / "hadolint", "--no-color", "--config", ROOT / ".hadolint.yaml", dockerfile)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
