"""The state folder of a ``tfcluster local run``, through which the other commands find it.

A run has its own folder that other users cannot read. At its end only its PersistentVolumeClaims are kept. The next
run deletes the rest of a killed run, whose lock is not held by any process.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfcluster.errors import TFClusterError, UnreachableError

_KUBECONFIG: Final = "kubeconfig"
_STATE: Final = "run.json"
#: Held during a run: the system releases it when the process ends for any reason.
_LOCK: Final = "lock"
#: The longest time, in seconds, that a process which only checks or cleans up holds a lock.
_PATIENCE: Final = 1.0
#: The files of PersistentVolumeClaims, by namespace and name; they outlive their run.
CLAIMS: Final = "claims"


@dataclass(frozen=True, slots=True)
class Session:
    """A run on this machine."""

    name: str
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / _KUBECONFIG

    @property
    def runs(self) -> bool:
        return _is_locked(self.folder / _LOCK)

    @property
    def claims(self) -> list[Path]:
        """The folders of the PersistentVolumeClaims that hold files."""
        return [one for one in sorted((self.folder / CLAIMS).glob("*/*")) if _holds_files(one)]

    def about(self) -> dict[str, Any]:
        """Return the state that the run wrote: ``pid``, ``began`` in seconds since the epoch, ``clusters``."""
        with contextlib.suppress(OSError, ValueError):
            told: dict[str, Any] = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
            return told
        return {}


def states() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state).absolute() / "tfcluster" / "local"


def running() -> list[Session]:
    return [session for session in known() if session.runs]


def known() -> list[Session]:
    """List the running sessions, and those that left volumes."""
    return [Session(folder.name, folder) for folder in sorted(states().glob("*/"))]


@contextlib.contextmanager
def begin(name: str) -> Iterator[Session]:
    """Create the folder of a run; at the end everything except its volumes is deleted."""
    folder = states() / name
    for left in known():
        with contextlib.suppress(OSError):
            if (descriptor := lock(left.folder / _LOCK)) is not None:
                _clean(left)
                os.close(descriptor)
    session = Session(name, folder)
    until = time.monotonic() + _PATIENCE
    try:
        while (descriptor := _new_lock(folder)) is None and time.monotonic() < until:
            time.sleep(0.01)
    except OSError as error:
        raise TFClusterError(
            f"the run needs a folder for its state, and {folder} cannot be made: {error.strerror}",
            hint="Set XDG_STATE_HOME to a folder that you can write to.",
        ) from error
    if descriptor is None:
        pid = session.about().get("pid", "?")
        raise TFClusterError(
            f"a run named {name} is there already (process {pid})",
            hint="End it with Ctrl-C, or give this one another name: --name NAME.",
        )
    try:
        _empty(folder)
        yield session
    finally:
        session.kubeconfig.unlink(missing_ok=True)
        _clean(session)
        os.close(descriptor)


def delete(name: str) -> None:
    """Delete the volumes that a run left."""
    session = Session(name, states() / name)
    if not session.folder.is_dir():
        raise TFClusterError(f"run {name} not found", hint="List the runs with `tfcluster local list`.")
    if (descriptor := _new_lock(session.folder)) is None:
        raise TFClusterError(f"the run {name} is not over", hint=f"End it first: kill {session.about().get('pid')}")
    shutil.rmtree(session.folder)
    os.close(descriptor)


def tell(session: Session, kubeconfig: str, **about: Any) -> None:
    """Write the kubeconfig and the state of a run; from now on the other commands find it."""
    _write_private(session.folder / _STATE, json.dumps(about))
    _write_private(session.kubeconfig, kubeconfig)


def is_of_a_run(kubeconfig: str) -> bool:
    return bool(kubeconfig) and Path(kubeconfig).is_relative_to(states())


def kubeconfig_of(name: str | None) -> Path:
    found = [one for one in running() if name in {None, one.name} and one.kubeconfig.exists()]
    if not found:
        raise UnreachableError(
            f"no `tfcluster local run`{f' named {name}' if name else ''} runs here",
            hint="Start one with `tfcluster local run -f FILE`.",
        )
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise UnreachableError(f"several run here: {names}", hint="Choose one with --session NAME.")
    return found[0].kubeconfig


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _new_lock(folder: Path) -> int | None:
    """Create a folder if needed and lock it; None if another process holds the lock or deletes the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        return lock(folder / _LOCK, os.O_CREAT)
    return None


def lock(path: Path, how: int = 0) -> int | None:
    """Lock an existing file, and return its descriptor; None if another process holds it, or the file was replaced."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process can delete the file between open and lock.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None


def _clean(session: Session) -> None:
    """Delete what a run left, except its volumes."""
    if session.claims:
        _empty(session.folder)
    else:
        shutil.rmtree(session.folder, ignore_errors=True)


def _empty(folder: Path) -> None:
    """Delete the files of an earlier run of that name, except its volumes."""
    for entry in folder.iterdir():
        if entry.name in (_LOCK, CLAIMS):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()


def _holds_files(folder: Path) -> bool:
    return any(not one.is_dir() or one.is_symlink() for one in folder.rglob("*"))


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text, encoding="utf-8")
    new.replace(path)
