"""How much memory this container has left: what is not there cannot be taken without the kernel killing a process."""

from __future__ import annotations

import os
from pathlib import Path

_UNLIMITED = "max"


def free_memory(cgroup: str | os.PathLike[str] = "/sys/fs/cgroup") -> int | None:
    """Tell how many bytes may still be used under the container's memory limit.

    Args:
        cgroup: where the container's control group is mounted (version 2).

    Returns:
        The bytes left, the file cache counted as free; None where there is no limit to be seen.
    """
    folder = Path(cgroup)
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        if limit == _UNLIMITED:
            return None
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        words = (folder / "memory.stat").read_text(encoding="ascii").split()
        statistics = dict(zip(words[::2], words[1::2], strict=False))
        return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
