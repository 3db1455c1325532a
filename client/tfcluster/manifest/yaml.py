"""YAML and JSON: from the text of a file to values that know their line, and back.

YAML is read as Kubernetes reads it, with go-yaml's second version: ``0644`` is octal, ``yes`` is true, ``12:30`` and
``2026-01-01`` are strings, and keys that are numbers become strings. Unlike there, a duplicate key in one object is
rejected. Written values are quoted if any reader of YAML 1.1 or 1.2 needs the quotes.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

Object = dict[str, Any]

#: Aliases in aliases grow by powers: a file of a few lines could fill the memory.
_MOST_VALUES: Final = 1_000_000


class ProblemError(Exception):
    """A text cannot be read."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(words)
        self.line = line
        self.words = words


class Document(NamedTuple):
    """One document of a file: its value, the line where it begins, and YAML's node, None for JSON."""

    value: Any
    line: int
    node: yaml.Node | None = None

    def inside(self, step: str | int) -> "Document | None":
        """Return the value at a key or an index, with the line of its key; None if the text does not contain it."""
        inner: Any = None
        if isinstance(self.value, Mapping):
            inner = self.value.get(str(step))
        elif isinstance(self.value, Sequence) and isinstance(step, int) and step < len(self.value):
            inner = self.value[step]
        if isinstance(self.node, yaml.MappingNode):
            for key, node in reversed(self.node.value):
                if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                    return Document(inner, _line(key), node)
        elif isinstance(self.node, yaml.SequenceNode) and isinstance(step, int) and step < len(self.node.value):
            node = self.node.value[step]
            return Document(inner, _line(node), node)
        return None


def documents(text: bytes) -> list[Document]:
    """Read the documents of a text; raises ProblemError if it is neither YAML nor JSON."""
    try:
        return _json_documents(text) or list(_yaml_documents(text))
    except RecursionError as error:
        raise ProblemError(1, "it is nested too deep") from error


def _json_documents(text: bytes) -> list[Document]:
    """Return the successive objects of a JSON file; empty if it is not JSON, but might be YAML."""
    if not text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return []
    decoder, found, at = json.JSONDecoder(), [], 0
    try:
        whole = text.decode("utf-8-sig")
        while rest := whole[at:].lstrip():
            begin = len(whole) - len(rest)
            body, at = decoder.raw_decode(whole, begin)
            found.append(Document(body, whole.count("\n", 0, begin) + 1))
    except ValueError:
        return []
    return found


# --- YAML


def reads_as_text(text: str) -> bool:
    """Return whether an unquoted text is a string, for Kubernetes' reader and for others of YAML 1.1 and 1.2."""
    return not any(
        pattern.match(text)
        for loader in (_Loader, yaml.SafeLoader)
        for _, pattern in loader.yaml_implicit_resolvers.get(text[:1], ())
    )


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml's is there, or not
    """Reads scalars as go-yaml's second version does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own
    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 - likewise


for _tag, _pattern, _first in (
    ("bool", r"[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
):
    for _key in (*_first.replace("\0", ""), *([""] if "\0" in _first else ())):
        _Loader.yaml_implicit_resolvers.setdefault(_key, []).append(
            (f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"))
        )


def _yaml_documents(text: bytes) -> Iterator[Document]:
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            body = _Reader(loader).value(node)
            # kubectl skips empty documents: a comment before the first "---" is one.
            if body is not None:
                yield Document(body, _line(node), node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else 0
        words = f"it is not YAML: {error.problem or error.context}"
        if b"\t" in b"".join(text.split(b"\n")[line : line + 1]):
            words += ": indent with spaces, YAML does not permit tabs there"
        elif error.problem and error.context:
            words += f" ({error.context})"
        raise ProblemError(line + 1, words) from error
    except yaml.reader.ReaderError as error:
        raise ProblemError(1, f"it is not UTF-8 text: {error.reason}") from error
    except yaml.YAMLError as error:
        raise ProblemError(1, f"it is not YAML: {error}") from error


class _Reader:
    """Converts nodes to values."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        #: The value of each node: an alias is the node that it names.
        self._read: dict[int, Any] = {}
        #: How many values each node is with its aliases written out, as JSON has them.
        self._sizes: dict[int, int] = {}

    def value(self, node: yaml.Node) -> Any:
        if id(node) not in self._read:
            inside: list[yaml.Node] = []
            if isinstance(node, yaml.MappingNode):
                self._read[id(node)] = self._mapping(node)
                inside = [value for _, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                self._read[id(node)] = [self.value(one) for one in node.value]
                inside = node.value
            else:
                self._read[id(node)] = self._scalar(node)
            self._sizes[id(node)] = 1 + sum(self._sizes[id(one)] for one in inside)
            if self._sizes[id(node)] > _MOST_VALUES:
                raise _problem(node, f"its aliases expand it to more than {_MOST_VALUES:,} values")
        return self._read[id(node)]

    def _mapping(self, node: yaml.MappingNode) -> Object:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self._key(key)
            if name in seen:
                raise _problem(key, f'the key "{name}" is in one object twice: remove one')
            seen.add(name)
        self._loader.flatten_mapping(node)
        return {self._key(key): self.value(value) for key, value in node.value}

    def _key(self, node: yaml.Node) -> str:
        value = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        raise _problem(node, "a key must be a text")

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:
            raise _problem(node, f'"{node.value}" cannot be read: {error}') from error
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _problem(node, f"{node.value} is not a number in JSON")
            return int(value) if value.is_integer() else value
        if value is None or isinstance(value, str | int):
            return value
        raise _problem(node, f"{node.tag} is not a JSON type: write a text, a number, true or false")


def _problem(node: yaml.Node, words: str) -> ProblemError:
    return ProblemError(_line(node), words)


def _line(marked: yaml.Node) -> int:
    return marked.start_mark.line + 1 if marked.start_mark else 1


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # libyaml's is there, or not
    """Quotes strings that some reader would not read as strings."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full instead of as an alias."""
        del data
        return True


def _of_text(dumper: Any, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None if reads_as_text(text) else "'"
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", text, style)
    return node


_Dumper.add_representer(str, _of_text)


def write(*documents: Any, width: int = 80) -> str:
    """Write documents of dicts, lists, texts and numbers."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)
    return text
