"""How far the API server's history has come, and whether it has lost a part of it.

Resource versions only grow, as long as etcd keeps its data.  Once it is restored from a backup they begin again at an
earlier one: every cache then drops what is new as if it were old, and a watch from a version that is yet to come stays
silent.  Only a process that begins with empty caches is right again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tfcluster_operator.kube import errors

#: For how many seconds an API server may be behind another one before that is taken for a loss.
_PATIENCE: Final = 5.0


class History:
    """The newest version that one reader was told of.

    Args:
        elapsed: seconds, by a clock that never steps.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._newest = 0
        self._behind_since: float | None = None

    def reached(self, version: int) -> None:
        """Note a version that an event or a bookmark told of."""
        self._newest = max(self._newest, version)

    def compare(self, version: int) -> None:
        """Compare a list with what is known.

        Args:
            version: the list's resource version; the list must have been asked for without one, so that it is the
                newest there is (Kubernetes, "API Concepts", semantics of resource versions).

        Raises:
            StaleError: it is older than what is known.
            HistoryLostError: it has been for so long that no server can be so late.
        """
        if version >= self._newest:
            self._newest, self._behind_since = version, None
            return
        now = self._elapsed()
        self._behind_since = now if self._behind_since is None else self._behind_since
        words = f"the API server is at version {version} and was at {self._newest} before"
        if now - self._behind_since >= _PATIENCE:
            raise errors.HistoryLostError(f"{words}: was etcd restored from a backup?")
        raise errors.StaleError(words)
