"""The files of views: what one says, by digests, so that no text is kept to compare it with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tfcluster_operator.model.digests import digest
from tfcluster_operator.model.observed import ObservedFile
from tfcluster_resolver import contract


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One wanted file: its text, and what it says."""

    text: str
    says: ObservedFile

    @property
    def digest(self) -> str:
        """The digest of the text."""
        return self.says.digest

    @property
    def epoch(self) -> int:
        """The view's epoch."""
        return self.says.epoch

    @property
    def told(self) -> str:
        """What the pods that read it are told."""
        return self.says.told


#: What the files say that were read or built lately, by their digest: reading a large one takes milliseconds.
_read: Final[dict[str, ObservedFile]] = {}
_READ_AT_MOST: Final = 4_096


def build_file(view: contract.View, membership: str) -> ViewFile:
    """Spell a view as a file."""
    text = contract.dump(view)
    return ViewFile(text, _remember(_says(view, digest(text), membership)))


def read_file(text: str) -> ObservedFile:
    """Tell what a ConfigMap's file says, for the comparison with what it should say."""
    name = digest(text)
    if (known := _read.get(name)) is not None:
        return known
    try:
        view = contract.load(text)
    except contract.ContractError:
        return ObservedFile(digest=name, membership="", epoch=0, told=name)
    return _remember(_says(view, name, membership_digest(view)))


def membership_digest(view: contract.View) -> str:
    """Shorten what an epoch counts: the tasks, their addresses and their filters."""
    return digest(contract.dump(replace(view, epoch=0, accelerators={}, isolation="", leaving={}, incarnations={})))


def _says(view: contract.View, name: str, membership: str) -> ObservedFile:
    """Tell what a file of this digest says.

    A pod is told of a new file, so that its kubelet looks at once, unless only the tasks that leave differ: they come
    with a new epoch, and that they are gone at last changes nothing for those that stay.
    """
    told = name
    if view.leaving or view.incarnations:
        told = digest(contract.dump(replace(view, leaving={}, incarnations={})))
    if view.incarnations:
        told += "-" + digest(str(sorted((job, *sorted(of_job.items())) for job, of_job in view.incarnations.items())))
    return ObservedFile(name, membership, view.epoch, told, view.incarnations)


def _remember(file: ObservedFile) -> ObservedFile:
    if file.incarnations:
        return file  # NB: it holds a word for each task, and few are the same
    if len(_read) >= _READ_AT_MOST:
        _read.clear()
    _read[file.digest] = file
    return file
