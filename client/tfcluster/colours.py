"""Whether what is printed may have colours (no-color.org)."""

from __future__ import annotations

import os
from typing import TextIO


def wanted(stream: TextIO | None) -> bool:
    """Tell whether a stream shows colours: it is a terminal, and its user has not set NO_COLOR."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
