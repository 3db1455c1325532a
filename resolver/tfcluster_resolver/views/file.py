"""Reading the mounted view.

The kubelet writes a ConfigMap's files into a new folder and then swaps the symlink ``..data`` to it, so a reader that
follows the link for each file can see half of the old and half of the new.  Here the link is resolved once, both files
are looked for behind it, and a folder that vanishes in the meantime means that a newer one is there: look again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.errors import MalformedViewError, UnsupportedViewError, ViewNotFoundError, ViewUnreadableError

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10

#: The symlink that the kubelet swaps (pkg/volume/util/atomic_writer.go).
DATA: Final = "..data"

#: Bytes; a ConfigMap holds a quarter of them.
_LARGEST: Final = 4 * 2**20

#: Device, inode, modification and change in ns, size: differs whenever the kubelet has swapped the folder.
_Stamp = tuple[int, int, int, int, int]


class ViewFile:
    """The view in a mounted folder, parsed again only after a change; a task's own file takes precedence."""

    #: Seconds: a swap is known within 100 ms.
    interval: Final = 0.05

    def __init__(self, directory: str | os.PathLike[str], index: int | None, shared: str = contract.VIEW_FILE) -> None:
        self._directory = _arguments.path(directory, "directory")
        self._names = (shared,) if index is None else (contract.task_view_file(index), shared)
        self._stamped = tuple(os.path.join(self._directory, name) for name in (DATA, *self._names))  # noqa: PTH118 - text
        self._last: tuple[_Stamp, tuple[contract.View, Path]] | None = None

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Read one file, whatever its name."""
        folder, name = os.path.split(_arguments.path(path, "path"))
        return cls(folder, None, name)

    def view(self) -> contract.View:
        return self.read()[0]

    def read(self) -> tuple[contract.View, Path]:
        """Read the current view, and return the file as well; one ``stat`` if it has not changed."""
        try:
            # The stamp is older than the text that is read after it: a swap between the two costs one more reading
            # at the next call, and never hides a change.
            stamp = self._stamp()
            # Read the shared state once, and change it once.
            last = self._last
            if last is None or last[0] != stamp:
                path, content = self._content()
                last = self._last = (stamp, (parse(content, str(path)), path))
        except ViewNotFoundError:
            raise
        except FileNotFoundError as error:
            raise self._not_found() from error
        except OSError as error:
            cure = "the container's user must be able to read it (look at the pod's securityContext and volume)"
            raise ViewUnreadableError(
                f"cannot read the view {error.filename or self._directory}: {error.strerror}"
                f"{f'; {cure}' if isinstance(error, PermissionError) else ''}"
            ) from error
        return last[1]

    def _stamp(self) -> _Stamp:
        """Return the state of the folder behind ``..data``, or of the file itself without a kubelet's folder."""
        looked_behind = None
        while True:
            for path in self._stamped:
                try:
                    found = os.stat(path)  # noqa: PTH116 - the hot path of every call
                except FileNotFoundError:
                    continue
                return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
            # A folder swapped away between the lookup of its name and its stat is not a missing view.
            link = self._link()
            if link in ("", looked_behind):
                raise self._not_found()
            looked_behind = link

    def _content(self) -> tuple[Path, bytes]:
        link = self._link()
        while True:
            folder = Path(self._directory, link)
            for name in self._names:
                try:
                    with (folder / name).open("rb") as file:
                        return folder / name, file.read(_LARGEST + 1)
                except FileNotFoundError:
                    continue
            looked_behind, link = link, self._link()
            # The folder was replaced during the check; each further round needs a further replacement.
            if link == looked_behind:
                raise self._not_found()

    def _link(self) -> str:
        try:
            return os.readlink(self._stamped[0])  # noqa: PTH115 - the link's text is compared
        except FileNotFoundError:
            return ""

    def _not_found(self) -> ViewNotFoundError:
        names = ", ".join(self._names)
        said = (
            f"none of {names} is in {self._directory}" if len(self._names) > 1 else f"{self._directory} has no {names}"
        )
        return ViewNotFoundError(
            f"no view: {said}. "
            f"In a TFCluster's pod the operator mounts it at {contract.DEFAULT_DIRECTORY}; elsewhere pass directory= "
            f"or set {contract.ENV_DIRECTORY} to a folder with a {contract.VIEW_FILE}"
        )


def parse(content: str | bytes, where: str) -> contract.View:
    """Read the text of a view, or raise a ViewError with its path."""
    if len(content) > _LARGEST:
        raise MalformedViewError(f"{where} is not a view: it has more than the {_LARGEST} bytes that a view can have")
    try:
        return contract.load(content)
    except contract.UnsupportedVersionError as error:
        raise UnsupportedViewError(f"{where}: {error}") from error
    except contract.ContractError as error:
        raise MalformedViewError(
            f"{where} is not a view: {error}. The operator writes it, so look who else edits its ConfigMap"
        ) from error
