"""The book of figures: what each measurement gave the last time, with the date, the machine and the commit.

A new run replaces the figures of what it measured and leaves all others alone.
"""

import json
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BOOK: Final = ROOT / "bench" / "figures.json"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The date, machine and commit of a measurement."""

    date: str
    machine: str
    commit: str


@dataclass(slots=True)
class Result:
    """The result of one measurement.

    ``series`` has one reading a run, by quantity; the n-th readings of the series that begin with "ours" and "bare" are
    of the n-th pair. ``facts`` are single numbers and words.
    """

    name: str
    series: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, float | str] = field(default_factory=dict)
    provenance: Provenance | None = None

    def add(self, **readings: float) -> None:
        """Append one reading to each of some series."""
        for quantity, reading in readings.items():
            self.series.setdefault(quantity, []).append(reading)

    def ratios(self, over: str, under: str) -> list[float]:
        """Divide the readings of one series by those of another, pair by pair."""
        return [a / b for a, b in zip(self.series[over], self.series[under], strict=True)]


Book = Mapping[str, Result]


def load(path: Path = BOOK) -> dict[str, Result]:
    """Read a book."""
    if not path.exists():
        return {}
    return {name: _result(name, entry) for name, entry in json.loads(path.read_text(encoding="utf-8")).items()}


def merged(book: Book, results: Iterable[Result]) -> dict[str, Result]:
    """Return a book with new or replaced results."""
    return {**book, **{result.name: result for result in results}}


def dump(book: Book) -> str:
    """Write a book as JSON, a series a line, sorted by name, so that a diff shows which measurements were repeated."""
    entries = {name: _entry(book[name]) for name in sorted(book)}
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-+.\de,\s]*\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n"


def here() -> Provenance:
    """Describe this run: the day, the machine, and the commit, with a "+" if sources differ from it."""
    cores = Path("/proc/cpuinfo").read_text(encoding="utf-8").count("processor\t:")
    memory = int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]) // 2**20
    system = f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "operator", "resolver", "bench/*.py", "crds")
    return Provenance(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=f"{cores} cores, {memory} GiB, {system}",
        commit=f"{commit}{'+' if changed else ''}",
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("" if done.returncode == 0 else "unknown")


def _entry(result: Result) -> dict[str, object]:
    series = {quantity: [float(f"{reading:.5g}") for reading in of] for quantity, of in result.series.items()}
    about = asdict(result.provenance) if result.provenance else {}
    return {**about, "facts": result.facts, "series": series}


def _result(name: str, entry: dict[str, object]) -> Result:
    about = {key: entry.pop(key) for key in ("date", "machine", "commit") if key in entry}
    return Result(name, **entry, provenance=Provenance(**about) if about else None)  # type: ignore[arg-type]  # as written
