"""Digests: what an annotation or a memory keeps of a text, to tell whether another is the same."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """Shorten a text to 16 characters."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
