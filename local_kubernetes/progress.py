"""What the user reads while this tool works: one line a step on standard error, and one kind of failure.

Standard output stays free for answers (``status``, ``doctor``), so that scripts can read them.
"""

from __future__ import annotations

import sys


class LocalKubernetesError(Exception):
    """Something the user can act on; its message says what."""


def tell(line: str) -> None:
    """Print one line about what happens now."""
    print(f"local_kubernetes: {line}", file=sys.stderr, flush=True)
