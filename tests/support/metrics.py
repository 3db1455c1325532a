"""The metrics of a scrape, and those that docs/reference/metrics.md documents."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
_ROW: Final = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \|([^|]*)\|[^|]+\|$", re.MULTILINE)
#: Placeholders in the tables, such as "an HTTP status".
OPEN: Final = ""

Sample = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Family:
    """One metric: its type, and the values of each of its labels."""

    kind: str
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)


def documented() -> dict[str, Family]:
    """Return every row of the tables in docs/reference/metrics.md, by the name of the metric."""
    return {
        row[1]: Family(row[2], _labels(row[3].strip())) for row in _ROW.finditer(_DOCUMENT.read_text(encoding="utf-8"))
    }


def _labels(cell: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for label in filter(None, cell.split("; ")):
        name, _, values = label.partition(": ")
        told = [value.strip("`") if value.startswith("`") else OPEN for value in values.split(", ")]
        found[name.strip("`")] = frozenset(told)
    return found


def families(text: str) -> dict[str, Family]:
    """Return the metrics of a scrape by their documented names, with their values."""
    found: dict[str, Family] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: dict[str, set[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    labels.setdefault(label, set()).add(value)
        found[name] = Family(family.type, {label: frozenset(values) for label, values in labels.items()})
    return found


class Scrape(dict[Sample, float]):
    def __init__(self, text: str) -> None:
        super().__init__(
            ((sample.name, frozenset(sample.labels.items())), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )

    def value(self, name: str, **labels: str) -> float:
        return self[name, frozenset(labels.items())]

    def not_zero(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the non-zero samples of a metric by their label values, in the order of the label names."""
        return {
            tuple(value for _, value in sorted(labels)): found
            for (of, labels), found in self.items()
            if of == name and found
        }

    def since(self, before: "Scrape", name: str) -> dict[tuple[str, ...], float]:
        """Return the growth of each sample of a metric since another scrape, without zeros."""
        old = before.not_zero(name)
        grown = {key: found - old.get(key, 0.0) for key, found in self.not_zero(name).items()}
        return {key: by for key, by in grown.items() if by}
