"""The tool's output to the user: one line a step on standard error, and one kind of failure.

Standard output stays free for answers (``status``, ``doctor``), so that scripts can read them.
"""

import sys


class LocalKubernetesError(Exception):
    """A failure that the user can fix; its message says how."""


def tell(line: str) -> None:
    """Print one line about the current step."""
    print(f"local_kubernetes: {line}", file=sys.stderr, flush=True)
