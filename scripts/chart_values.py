"""`make chart-docs`: generate docs/reference/chart-values.md from the comments in the chart's values.yaml.

A comment that begins with ``###`` begins a table; the comment right above a value describes it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
VALUES: Final = ROOT / "charts" / "tfcluster-operator" / "values.yaml"
PAGE: Final = ROOT / "docs" / "reference" / "chart-values.md"
#: Objects that are documented as one value: Kubernetes' own fields, with defaults.
WHOLE: Final = frozenset({"podSecurityContext", "containerSecurityContext", "strategy"})
HEAD: Final = """\
# Values of the Helm chart

<!-- Made from the chart's values.yaml by `make chart-docs`. -->

`helm install --set NAME=VALUE` sets one, `--values FILE` several. A schema rejects names that do not exist.

"""


def tables(text: str) -> str:
    """Build the tables.

    Raises:
        SystemExit: a value does not have a comment.
    """
    lines = text.splitlines()
    made = []
    title = ""
    for path, line, value in _leaves(yaml.compose(text), ""):
        heading = next(found[4:] for found in reversed(lines[:line]) if found.startswith("### "))
        if heading != title:
            made.append(f"\n## {heading}\n\n| value | default | effect |\n|---|---|---|\n")
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


def page() -> str:
    """Build the page."""
    return HEAD + tables(VALUES.read_text(encoding="utf-8")).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
