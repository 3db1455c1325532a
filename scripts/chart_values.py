"""`make chart-docs`: the tables of values in the chart's README, made from the comments in its values.yaml.

A comment that begins with ``###`` begins a table; the comment right above a value describes it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).resolve().parent.parent / "charts" / "tfcluster-operator"
#: Objects that are one value each: Kubernetes' own fields, with defaults.
WHOLE: Final = frozenset({"podSecurityContext", "containerSecurityContext"})
BEGIN: Final = "<!-- The tables are made from values.yaml by `make chart-docs`. -->\n"
END: Final = "<!-- The end of the tables. -->\n"


def tables(text: str) -> str:
    """Make the tables.

    Raises:
        SystemExit: a value has no comment.
    """
    lines = text.splitlines()
    made = []
    title = ""
    for path, line, value in _leaves(yaml.compose(text), ""):
        heading = next(found[4:] for found in reversed(lines[:line]) if found.startswith("### "))
        if heading != title:
            made.append(f"\n### {heading}\n\n| value | default | effect |\n|---|---|---|\n")
            title = heading
        default = json.dumps(yaml.safe_load(yaml.serialize(value)))
        made.append(f"| `{path}` | `{default}` | {_description(path, lines, line)} |\n")
    return "".join(made).lstrip("\n") + "\n"


def _leaves(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int, yaml.Node]]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value and path not in WHOLE:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, key.start_mark.line, value


def _description(path: str, lines: Sequence[str], line: int) -> str:
    comment: list[str] = []
    for above in reversed(lines[:line]):
        words = above.strip()
        if not words.startswith("# "):
            break
        comment.insert(0, words[2:])
    if not comment:
        raise SystemExit(f"{path}: no comment above it says what it does")
    return " ".join(comment).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="scripts/chart_values.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the README is not up to date")
    parser.add_argument("--chart", type=Path, default=CHART, help="the chart's folder")
    chosen: Any = parser.parse_args(arguments)
    readme = chosen.chart / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}\n{tables((chosen.chart / 'values.yaml').read_text(encoding='utf-8'))}{END}{after}"
    if wanted == text:
        return 0
    if chosen.check:
        print("README.md is not what values.yaml says: run `make chart-docs`")
        return 1
    readme.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
