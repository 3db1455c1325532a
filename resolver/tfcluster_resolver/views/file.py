"""Reading the mounted view.

The kubelet writes a ConfigMap's files into a new folder and then swaps the symlink ``..data`` to it, so a reader that
follows the link for each file can see half of the old and half of the new.  Here the link is resolved once, both files
are looked for behind it, and a folder that vanishes meanwhile means that a newer one is there: look again.

It must not interpret the view: :mod:`tfcluster_resolver.contract` says what one is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.errors import MalformedViewError, UnsupportedViewError, ViewNotFoundError, ViewUnreadableError
from tfcluster_resolver.views.watch import FolderNotice

#: The symlink that the kubelet swaps (pkg/volume/util/atomic_writer.go).
_DATA: Final = "..data"

#: Bytes; a ConfigMap holds a quarter of them.
_LARGEST: Final = 4 * 2**20

#: Device, inode, modification and change in ns, size: differs whenever the kubelet has swapped the folder.
_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ReadView:
    """A view and the file that it came from."""

    path: Path
    view: contract.View


class ViewFile:
    """The view in a mounted folder, parsed again only after it changed.

    Args:
        directory: where the ConfigMap of the task's job is mounted.
        index: the own task's index; its ``task-<index>.json`` goes before ``cluster.json``.  None outside a pod.

    Raises:
        ArgumentError: the directory is no path.
    """

    def __init__(self, directory: str | os.PathLike[str], index: int | None) -> None:
        own = () if index is None else (contract.task_view_file(index),)
        self._look_for(_arguments.path(directory, "directory"), (*own, contract.VIEW_FILE))

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Read one file, whatever its name.

        Raises:
            ArgumentError: it is no path.
        """
        folder, name = os.path.split(_arguments.path(path, "path"))
        one = cls.__new__(cls)
        one._look_for(folder, (name,))  # noqa: SLF001 - of the same class
        return one

    def _look_for(self, directory: str, names: tuple[str, ...]) -> None:
        self._directory = directory
        self._names = names
        self._stamped = tuple(os.path.join(directory, name) for name in (_DATA, *names))  # noqa: PTH118 - text
        self._last: tuple[_Stamp, ReadView] | None = None

    def view(self) -> contract.View:
        """Give the view alone; see :meth:`read`."""
        return self.read().view

    def notice(self) -> FolderNotice:
        """Give what tells that the view may have changed."""
        return FolderNotice(self._directory)

    def read(self) -> ReadView:
        """Read the view as it is now; one ``stat`` where it has not changed.

        Raises:
            ViewNotFoundError: nothing is mounted there, or there is no view in it.
            ViewUnreadableError: the operating system refuses.
            MalformedViewError: the file is not a view.
            UnsupportedViewError: a newer operator wrote it.
        """
        try:
            # The stamp is older than the text that is read after it: a swap between the two costs one more reading
            # at the next call, and never hides a change.
            stamp = self._stamp()
            # NB: one look at what threads share, and one change of it.
            last = self._last
            if last is None or last[0] != stamp:
                path, content = self._content()
                last = self._last = (stamp, ReadView(path=path, view=_parse(path, content)))
        except FileNotFoundError as error:
            if isinstance(error, ViewNotFoundError):
                raise
            raise self._not_found() from error
        except OSError as error:
            raise ViewUnreadableError(
                f"cannot read the view {error.filename or self._directory}: {error.strerror}; "
                "the container's user must be able to read it (look at the pod's securityContext and volume)"
            ) from error
        return last[1]

    def _stamp(self) -> _Stamp:
        """Look at the folder behind ``..data``, or at the file itself where no kubelet made the folder."""
        looked_behind = None
        while True:
            for path in self._stamped:
                try:
                    found = os.stat(path)  # noqa: PTH116 - the hot path of every call
                except FileNotFoundError:
                    continue
                return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
            # NB: a folder swapped away between the lookup of its name and its stat is no missing view.
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
            # NB: the folder was swapped away while we looked; each further round needs a further swap.
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


def _parse(path: Path, content: bytes) -> contract.View:
    if len(content) > _LARGEST:
        raise MalformedViewError(f"{path} is not a view: it has more than the {_LARGEST} bytes that a view may have")
    try:
        return contract.load(content)
    except contract.UnsupportedVersionError as error:
        raise UnsupportedViewError(f"{path}: {error}") from error
    except contract.ContractError as error:
        raise MalformedViewError(
            f"{path} is not a view: {error}. The operator writes this file, so look who else edits its ConfigMap"
        ) from error
