"""The generated pages of docs/reference: api.md from the CRD, pod-commands.md and cli.md from --help.

Usage:
    python -m scripts.reference             write the pages
    python -m scripts.reference --check     check whether they are up to date; exit status 1 if they are not

It decides which fields are ours: Kubernetes' own schemas and the operator's internal fields are not listed.
"""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import yaml

from tfcluster.commands.root import COMMANDS as COMMANDS_OF_THE_CLI
from tfcluster.commands.root import root

ROOT: Final = Path(__file__).resolve().parent.parent
CRD: Final = ROOT / "crds" / "tfcluster.yaml"
API: Final = ROOT / "docs" / "reference" / "api.md"
COMMANDS: Final = ROOT / "docs" / "reference" / "pod-commands.md"
CLI: Final = ROOT / "docs" / "reference" / "cli.md"

#: The commands of the resolver, in the order of the documentation.
ORDER: Final = ("show", "doctor", "wait", "exec", "serve")

_POD_SPEC: Final = "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodSpec"
_LABEL_SELECTOR: Final = "https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/"
_SELECTOR: Final = f"Its fields are those of [Kubernetes' LabelSelector]({_LABEL_SELECTOR})."
#: Fields whose parts are not listed, and the text instead.
_CLOSED: Final = {
    "spec.jobs.J.template.spec": f"Its fields are those of [Kubernetes' PodSpec]({_POD_SPEC}).",
    "spec.isolation.allowFrom[].podSelector": _SELECTOR,
    "spec.isolation.allowFrom[].namespaceSelector": _SELECTOR,
    "status.internal": "",
}
#: The placeholder for the key of a map in a path.
_KEYS: Final = {"spec.jobs": "J", "spec.jobs.J.taskDeviceFilters": "N", "status.jobs": "J"}
_BOUNDS: Final = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minItems": "{} or more entries",
    "maxItems": "up to {} entries",
    "maxProperties": "up to {} entries",
    "maxLength": "up to {} characters",
}
_INTRODUCTION: Final = """\
# TFCluster fields

Every field of a TFCluster, generated from the CRD. `kubectl explain tfcluster.spec` shows the same. `J` stands for
the name of a job. [Lifecycle](../explanation/lifecycle.md) explains how fields work together,
and [Conditions](conditions.md) the status.

The group is `tfcluster.dev`, the version `v1alpha1`, the kind `TFCluster`, and the short name `tfc`.
"""

_SPEC_COLUMNS: Final = ["field", "type", "default", "bounds", "what it is"]
_STATUS_COLUMNS: Final = ["field", "type", "what it is"]

Schema = Mapping[str, Any]


def api_page() -> str:
    """Build the page of the fields."""
    definition = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    parts = [_INTRODUCTION]
    for name in ("spec", "status"):
        parts += _tables(name, root["properties"][name])
    columns = version["additionalPrinterColumns"]
    rows = [
        f"| `{c['name']}`{' (`-o wide`)' if c.get('priority') else ''} | {c.get('description', '')} |" for c in columns
    ]
    parts.append("\n".join(["## What `kubectl get tfc` shows", "", "| column | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _tables(path: str, schema: Schema) -> Iterator[str]:
    """Yield a table of an object's fields, then those of its nested objects."""
    fields = {f"{path}.{name}": part for name, part in schema["properties"].items()}
    columns = _SPEC_COLUMNS if path.startswith("spec") else _STATUS_COLUMNS
    rows = [columns, ["---"] * len(columns)]
    rows += [_row(name, part, name.rpartition(".")[2] in schema.get("required", ())) for name, part in fields.items()]
    table = "".join(f"| {' | '.join(row[: len(columns) - 1] + row[-1:])} |\n" for row in rows)
    yield f"## {path}\n\n{schema['description']}\n\n{table}"
    for name, part in fields.items():
        inner_path, inner = _inside(name, part)
        if name not in _CLOSED and "properties" in inner:
            yield from _tables(inner_path, inner)


def _inside(path: str, schema: Schema) -> tuple[str, Schema]:
    """Return the path and schema of the elements of lists and maps."""
    if "items" in schema:
        return _inside(f"{path}[]", schema["items"])
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict) and path in _KEYS:
        return _inside(f"{path}.{_KEYS[path]}", inner)
    return path, schema


def _row(path: str, schema: Schema, required: bool) -> list[str]:
    """Build the cells of a field; a table of the status does not use the third and fourth."""
    inner_path, inner = _inside(path, schema)
    words = schema["description"]
    if path in _CLOSED:
        words = f"{words} {_CLOSED[path]}".strip()
    elif "properties" in inner:
        words = f"{words} See [{inner_path}](#{_anchor(inner_path)})."
    default = "required" if required else f"`{_yaml(schema['default'])}`" if "default" in schema else ""
    return [f"`{path.rpartition('.')[2]}`", _type(schema), default, _bounds(schema), _cell(words)]


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "items" in schema:
        return f"list of {_type(schema['items'])}s"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    return "time" if schema.get("format") == "date-time" else str(schema["type"])


def _bounds(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return ", ".join(words.format(f"{schema[key]:,}") for key, words in _BOUNDS.items() if key in schema) or ""


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()


def _cell(text: str) -> str:
    """Escape a text for the cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _anchor(heading: str) -> str:
    """Return a heading's anchor in GitHub's format."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "-_")


# --- the commands


#: The beginning of the command line page.
_OF_THE_CLI: Final = """# The command line

`tfcluster` works on TFClusters from your shell, on a Kubernetes cluster or on this machine:

```console
$ pip install 'tfcluster[client]'
$ tfcluster --help
$ kubectl tfcluster --help      # the same, as a plug-in of kubectl
```

Data goes to stdout, everything else to stderr. Exit codes: 0 all went well, 1 it did not (the message says what to do),
2 the command line is wrong, 124 it took longer than `--timeout`, 130 Ctrl-C; where a command has others, it says so.

Most commands have these options; the first three can stand before the command or after it:
"""
_IN_A_POD: Final = """# Commands in pods

The operator delivers them into every pod: `kubectl exec POD -- python3 -m tfcluster_resolver COMMAND`. What they are
for is in [Write a program](../how-to/write-a-program.md). All take `--directory`, the folder where the view is mounted,
by default `$TFCLUSTER_DIR`, or `/etc/tfcluster`.
"""
_OF_THE_OPERATOR: Final = """## The operator

The chart starts `python -m tfcluster_operator`; [its values](chart-values.md) set these options:
"""
#: So wide that no help text is wrapped.
_WIDE: Final = 2000
#: Options that a page describes once.
_SAID_ONCE: Final = ("-h", "--help", "--version", "--directory")


@dataclass(frozen=True, slots=True)
class _Help:
    """The parts of a command's help: paragraphs, lines of examples, and (name, text) of each option and exit code."""

    usage: str
    text: list[str]
    examples: list[str]
    options: list[tuple[str, str]]
    codes: list[tuple[str, str]]


def commands_page() -> str:
    """Build the page of the commands in pods and of the operator."""
    parts, codes = [_IN_A_POD], {}
    for command in ORDER:
        found = _help_of_module("tfcluster_resolver", command)
        parts.append(_section(f"## {command}", replace(found, usage="")))
        for code, meaning in found.codes:
            codes.setdefault(code, {}).setdefault(meaning, []).append(f"`{command}`")
    rows = [
        (code, meaning if len(of) == len(ORDER) else f"{meaning} ({', '.join(of)})")
        for code, meanings in sorted(codes.items(), key=lambda item: (not item[0].isdigit(), item[0].zfill(3)))
        for meaning, of in meanings.items()
    ]
    options = _help_of_module("tfcluster_operator").options
    return "\n".join(
        [
            *parts,
            "## Exit codes\n",
            _list(rows),
            _OF_THE_OPERATOR,
            _list(_without(options, _SAID_ONCE)),
        ]
    )


def cli_page() -> str:
    """Build the page of the command line ``tfcluster``."""
    commands = {name: _help_of_command(command, f"tfcluster {name}") for name, command in _commands_of_the_cli()}
    common = commands["status"].options
    common = [one for one in common if sum(one in other.options for other in commands.values()) > len(commands) / 3]
    names = (*(name for name, _ in common), *_SAID_ONCE)
    sections = [_section(f"## {name}", found, names) for name, found in commands.items()]
    return "\n".join([_OF_THE_CLI, _list(common), *sections])


def _commands_of_the_cli() -> Iterator[tuple[str, click.Command]]:
    for names in COMMANDS_OF_THE_CLI.values():
        for name in names:
            command = root.get_command(click.Context(root), name)
            if command is None:
                raise LookupError(f"there is no command {name}")
            inner = getattr(command, "commands", {})
            yield from ((f"{name} {one}", inner[one]) for one in sorted(inner)) if inner else [(name, command)]


def _section(heading: str, found: _Help, said_once: Sequence[str] = _SAID_ONCE) -> str:
    """Build the section of a command, with the options that the page does not describe once for all."""
    parts = [heading, *(textwrap.fill(_cell(text), 120, break_on_hyphens=False) for text in found.text)]
    if found.usage:
        parts.append("\n".join(["```text", found.usage, *found.examples, "```"]))
    if options := _without(found.options, said_once):
        parts.append(_list(options).rstrip())
    return "\n\n".join(parts) + "\n"


def _without(options: Sequence[tuple[str, str]], names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in options if name not in names and name.split()[0].strip(",") not in names]


def _list(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(f"* `{name}`{': ' if text else ''}{_cell(text)}\n" for name, text in rows)


def _help_of_command(command: click.Command, path: str) -> _Help:
    context = click.Context(command, info_name=path, terminal_width=_WIDE, max_content_width=_WIDE)
    return _parse_help(command.get_help(context))


def _help_of_module(module: str, *command: str) -> _Help:
    # Newer Python versions color the headings.
    plain = {"COLUMNS": str(_WIDE), "NO_COLOR": "1", "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'operator'}"}
    done = subprocess.run(
        [sys.executable, "-m", module, *command, "--help"], check=True, capture_output=True, text=True, env=plain
    )
    return _parse_help(done.stdout)


def _parse_help(text: str) -> _Help:
    """Split what click and argparse print: paragraphs, and lists below a heading such as ``Options:``."""
    usage, *paragraphs = textwrap.dedent(text).split("\n\n")
    parts: dict[str, list[str]] = {"": []}
    for paragraph in paragraphs:
        heading, _, rest = paragraph.strip().partition("\n")
        if heading.lower() in {"options:", "exit codes:", "examples:", "commands:"}:
            # Argparse puts a text on a line of its own where the name of the option is long.
            parts[heading.lower()] = re.sub(r"\n {10,}", "  ", rest).splitlines()
        else:
            parts[""].append(" ".join(paragraph.split()))
    options, codes = (
        [
            (name.strip(), words.strip())
            for name, _, words in (line.strip().partition("  ") for line in parts.get(part, ()))
        ]
        for part in ("options:", "exit codes:")
    )
    return _Help(
        usage.partition(" ")[2].strip(),
        parts[""],
        [line.strip() for line in parts.get("examples:", ())],
        options,
        codes,
    )


def main() -> int:
    """Write or check the pages."""
    made = pages()
    stale = [
        file for file, text in made.items() if not file.is_file() or not same(file.read_text(encoding="utf-8"), text)
    ]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.relative_to(ROOT)} is not up to date: run `make reference`", file=sys.stderr)
        return 1 if stale else 0
    for file in stale:
        file.write_text(made[file], encoding="utf-8")
    return 0


def same(kept: str, made: str) -> bool:
    """Return whether two texts have the same words: other versions of argparse break lines differently."""
    return kept.split() == made.split()


def pages() -> dict[Path, str]:
    """Build the generated pages, by their files."""
    return {API: api_page(), COMMANDS: commands_page(), CLI: cli_page()}


if __name__ == "__main__":
    sys.exit(main())
