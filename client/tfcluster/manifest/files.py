"""Reading manifests from files as kubectl does: YAML or JSON, several documents, lists, folders, standard input."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tfcluster.errors import ManifestError
from tfcluster.manifest.yaml import Document, ProblemError, documents
from tfcluster.tasks import name_of
from tfcluster_operator.declaration import naming

Object = dict[str, Any]
Where = Sequence[str | int]

STDIN: Final = "-"
_ENDINGS: Final = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file: its body, and where it begins; line 0 means that it is not from a file."""

    body: Object
    source: str
    line: int = 1
    _document: Document | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        return _text(self.body.get("kind"))

    @property
    def name(self) -> str:
        """Its name, or a placeholder for a generated name; "" if both are missing."""
        about = self.body.get("metadata")
        return name_of(about) if isinstance(about, Mapping) else ""

    @property
    def namespace(self) -> str | None:
        about = self.body.get("metadata")
        return (_text(about.get("namespace")) or None) if isinstance(about, Mapping) else None

    def line_of(self, where: Where) -> int:
        """Return the line of a value, or of the innermost object around it in the file."""
        found = self._document
        for step in where if found is not None else ():
            inner = None if found is None else found.inside(step)
            if inner is None:
                break
            found = inner
        return self.line if found is None or not where else found.line

    def place(self, where: Where = ()) -> str:
        """Return "FILE:LINE" of a value, for messages."""
        line = self.line_of(where)
        return f"{self.source}:{line}" if line else self.source


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of one or more files."""

    clusters: tuple[Manifest, ...]
    others: tuple[Manifest, ...]

    def only(self) -> Manifest:
        if len(self.clusters) == 1:
            return self.clusters[0]
        if not self.clusters:
            raise _no_cluster(self.others)
        places = [f"{one.place()}: {one.name or 'without a name'}" for one in self.clusters]
        raise ManifestError("this takes one TFCluster, and there are several:", places)


def read(paths: Sequence[str | Path]) -> Manifests:
    found: list[Manifest] = []
    problems: list[str] = []
    for path in paths:
        for source, text in texts(path, problems):
            found += objects(source, text, problems)
    if problems:
        raise ManifestError("the manifest cannot be read:", problems)
    clusters = tuple(one for one in found if _is_cluster(one))
    return Manifests(clusters, tuple(one for one in found if not _is_cluster(one)))


def read_clusters(paths: Sequence[str | Path]) -> Manifests:
    """Read manifests as read does; raises ManifestError if they do not contain a TFCluster."""
    found = read(paths)
    if not found.clusters:
        raise _no_cluster(found.others)
    return found


def _is_cluster(manifest: Manifest) -> bool:
    group = _text(manifest.body.get("apiVersion")).partition("/")[0]
    return manifest.kind == naming.KIND and group in (naming.GROUP, "")


def _no_cluster(others: Sequence[Manifest]) -> ManifestError:
    told = [f"{one.place()}: {one.kind or 'an object without a kind'} {one.name}".rstrip() for one in others[:20]]
    if any(one.kind == "TFJob" for one in others):
        return ManifestError("no TFCluster found, but:", told, hint="Convert it first: tfcluster convert -f FILE")
    hint = "Create one with `tfcluster create NAME …`, or name another file with -f."
    return ManifestError("no TFCluster found" + (", but:" if told else ": the input is empty"), told, hint=hint)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- files


def texts(path: str | Path, problems: list[str]) -> Iterator[tuple[str, bytes]]:
    """Return the name and the text of each file of a path; unreadable files are added to the problems."""
    if str(path) == STDIN:
        yield "standard input", sys.stdin.buffer.read()
        return
    if str(path).startswith(("http://", "https://")):
        problems.append(f"{path}: fetch it first and pipe it in: curl -fsSL {path} | tfcluster … -f -")
        return
    whole = Path(path)
    try:
        files = sorted(one for one in whole.iterdir() if one.suffix in _ENDINGS) if whole.is_dir() else [whole]
        if not files:
            problems.append(f"{path}: no file in this folder ends in {', '.join(_ENDINGS)}")
        for file in files:
            yield str(file), file.read_bytes()
    except OSError as error:
        problems.append(f"{error.filename or path}: {error.strerror or error}")


def objects(source: str, text: bytes, problems: list[str]) -> Iterator[Manifest]:
    """Return the objects of a file; unreadable documents are added to the problems."""
    try:
        found = documents(text)
    except ProblemError as error:
        problems.append(f"{source}:{error.line}: {error.words}")
        return
    for document in found:
        yield from _objects(source, document, "this", problems)


def _objects(source: str, document: Document, what: str, problems: list[str]) -> Iterator[Manifest]:
    body = document.value
    if not isinstance(body, dict):
        words = f"{what} is not an object: begin with apiVersion, kind and metadata"
        problems.append(f"{source}:{document.line}: {words}")
        return
    items, kind = body.get("items"), _text(body.get("kind"))
    if not kind.endswith("List") or not isinstance(items, list):
        yield Manifest(body, source, document.line, document)
        return
    listed = document.inside("items")
    for index, item in enumerate(items):
        inner = None if listed is None else listed.inside(index)
        if kind != "List" and isinstance(item, dict):  # the API server omits the kind in lists of one kind
            item |= {"apiVersion": body.get("apiVersion"), "kind": kind.removesuffix("List")}
        yield from _objects(source, inner or Document(item, document.line), f"items[{index}]", problems)
