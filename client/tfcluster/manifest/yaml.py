"""YAML and JSON: from the text of a file to values that know their line, and back.

YAML is read as Kubernetes reads it, with go-yaml's second version: ``0644`` is octal, ``yes`` is true, ``12:30`` and
``2026-01-01`` are strings, and keys that are numbers become strings. Unlike there, a duplicate key in one object is
rejected. Written values are quoted if any reader of YAML 1.1 or 1.2 needs the quotes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

Object = dict[str, Any]

#: Aliases must not expand a file far beyond the limit of the API server.
_MOST_VALUES: Final = 1_000_000
_DEEPEST: Final = 200
_TOO_DEEP: Final = f"it is nested more than {_DEEPEST} levels deep"


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

    def inside(self, step: str | int) -> Document | None:
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
    return _json_documents(text) or list(_yaml_documents(text))


def _json_documents(text: bytes) -> list[Document]:
    """Return the successive objects of a JSON file; empty if it is not JSON, but might be YAML."""
    if not text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return []
    try:
        whole = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return []
    decoder = json.JSONDecoder(object_pairs_hook=_json_object, parse_constant=_no_constant)
    found, at = [], 0
    while rest := whole[at:].lstrip():
        at = len(whole) - len(rest)
        line = whole.count("\n", 0, at) + 1
        try:
            body, at = decoder.raw_decode(whole, at)
        except json.JSONDecodeError:
            return []
        except ValueError as error:
            raise ProblemError(line, str(error)) from error
        except RecursionError as error:
            raise ProblemError(line, _TOO_DEEP) from error
        found.append(Document(body, line))
    return found


def _json_object(pairs: list[tuple[str, Any]]) -> Object:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f'the key "{twice}" stands twice in one object: take one out')
    return made


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


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
        _check_depth(text)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            reader = _Reader(loader)
            body = reader.value(node)
            # kubectl skips empty documents: a comment before the first "---" is one.
            if body is not None:
                yield Document(body, _line(node), node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ProblemError(mark.line + 1 if mark else 1, _words_of(error)) from error
    except yaml.reader.ReaderError as error:
        raise ProblemError(1, f"it is not UTF-8 text: {error.reason}") from error
    except yaml.YAMLError as error:
        raise ProblemError(1, f"it is not YAML: {error}") from error
    except RecursionError as error:
        raise ProblemError(1, _TOO_DEEP) from error


def _check_depth(text: bytes) -> None:
    # Libyaml's composer would crash the process: it is recursive without a limit.
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ProblemError(_line(event), _TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _words_of(error: yaml.MarkedYAMLError) -> str:
    words = f"it is not YAML: {error.problem or error.context}"
    if "tab character" in words or "'\\t'" in words:
        return f"{words}: indent with spaces, YAML does not permit tabs there"
    return f"{words} ({error.context})" if error.problem and error.context else words


class _Reader:
    """Converts nodes to values."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        #: The value of each anchor, and how many values it contains.
        self._made: dict[int, tuple[Any, int]] = {}
        self._around: set[int] = set()

    def value(self, node: yaml.Node) -> Any:
        return self._value(node)[0]

    def _value(self, node: yaml.Node) -> tuple[Any, int]:
        if (known := self._made.get(id(node))) is not None:
            return known
        if id(node) in self._around:
            raise _problem(node, "an alias stands inside of what it names")
        self._around.add(id(node))
        made: tuple[Any, int]
        if isinstance(node, yaml.MappingNode):
            made = self._mapping(node)
        elif isinstance(node, yaml.SequenceNode):
            inner = [self._value(one) for one in node.value]
            made = [value for value, _ in inner], 1 + sum(size for _, size in inner)
        else:
            made = self._scalar(node), 1
        if made[1] > _MOST_VALUES:
            raise _problem(node, f"aliases make more than {_MOST_VALUES:,} values of it")
        self._around.discard(id(node))
        self._made[id(node)] = made
        return made

    def _mapping(self, node: yaml.MappingNode) -> tuple[Object, int]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self._key(key)
            if name in seen:
                raise _problem(key, f'the key "{name}" stands twice in one object: take one out')
            seen.add(name)
        self._loader.flatten_mapping(node)
        inner = {self._key(key): self._value(value) for key, value in node.value}
        return {key: value for key, (value, _) in inner.items()}, 1 + sum(size for _, size in inner.values())

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


def _line(marked: yaml.Node | yaml.Event) -> int:
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
