"""The generated pages of docs/reference: api.md from the CRD, pod-commands.md and cli.md from --help.

Usage:
    python -m scripts.reference             write the pages
    python -m scripts.reference --check     check whether they are up to date; exit status 1 if they are not

It decides which fields are ours: Kubernetes' own schemas and the operator's internal fields are not listed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
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
ORDER: Final = ("show", "matrix", "doctor", "wait", "exec", "serve")

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

_IN_A_POD: Final = """\
The operator delivers it into every pod: `kubectl exec POD -- python3 -m tfcluster_resolver COMMAND`. What the commands
are for is in [The resolver, by task](../how-to/write-a-program.md).
"""

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
    yield f"## {path}\n\n{schema['description']}\n\n{table}{_refusals(path, schema, fields)}"
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


def _refusals(path: str, schema: Schema, fields: Mapping[str, Schema]) -> str:
    """List the API server's messages for values that break a rule, by the field that they name."""
    said: dict[str, None] = {}
    for name, part in ((path, schema), *fields.items()):
        inner = _inside(name, part)[1]
        for rules_of in (part, inner) if "properties" not in inner and inner is not part else (part,):
            if name in fields and "properties" in rules_of and name not in _CLOSED:
                continue  # its own table lists them
            for rule in rules_of.get("x-kubernetes-validations", ()):
                said[f"* `{name}{rule.get('fieldPath', '')}`: {_cell(rule['message'])}\n"] = None
    return f"\nThe API server rejects, with this message:\n\n{''.join(said)}" if said else ""


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

Commands that talk to a cluster take `-n`, `--context` and `--kubeconfig` as kubectl does, before the command or after
it, and `--local` for what `tfcluster local run` plays on this machine. Data goes to stdout, everything else to
stderr. Exit codes: 0 all went well, 1 it did not (the message says what to do), 2 the command line is wrong, 124 it
took longer than `--timeout`, 130 Ctrl-C; where a command has others, it says so.
"""


def commands_page() -> str:
    """Build the page of the commands."""
    parts = [
        "# Commands\n",
        "The output of `--help`.\n",
        "## In a pod: `python -m tfcluster_resolver`\n",
        _IN_A_POD,
        _help("tfcluster_resolver"),
    ]
    for command in ORDER:
        parts += [f"### {command}\n", _help("tfcluster_resolver", command)]
    parts += [
        "## The operator: `python -m tfcluster_operator`\n",
        "The chart starts it; its values set these options, see [its values](chart-values.md).\n",
        _help("tfcluster_operator"),
    ]
    return "\n".join(parts)


def cli_page() -> str:
    """Build the page of the command line ``tfcluster``."""
    parts = [_OF_THE_CLI, _words_of(root, "tfcluster")]
    for names in COMMANDS_OF_THE_CLI.values():
        for name in names:
            command = root.get_command(click.Context(root), name)
            if command is None:
                raise LookupError(f"there is no command {name}")
            parts += [f"## {name}\n", _words_of(command, f"tfcluster {name}")]
            for inner, one in sorted(getattr(command, "commands", {}).items()):
                parts += [f"### {name} {inner}\n", _words_of(one, f"tfcluster {name} {inner}")]
    return "\n".join(parts)


def _words_of(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path, terminal_width=100, max_content_width=100)
    return f"```text\n{command.get_help(context).rstrip()}\n```\n"


def _help(module: str, *command: str) -> str:
    # Argparse wraps at the width of the terminal, and newer Python versions color the headings.
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'operator'}"}
    done = subprocess.run(
        [sys.executable, "-m", module, *command, "--help"], check=True, capture_output=True, text=True, env=plain
    )
    return f"```text\n{done.stdout.rstrip()}\n```\n"


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
