"""Text for people: with colours unless they want none (no-color.org), harmless to a terminal, and short."""

import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

#: The Unicode categories of control characters and of invalid characters.
_CONTROLS: Final = frozenset({"Cc", "Cf", "Cs"})
_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"


def wants_colour(stream: TextIO | None) -> bool:
    """Return whether a stream shows colours: it is a terminal, and its user has not set NO_COLOR."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


def clean(text: Any) -> str:
    """Return a text as one line without control characters, because other users can have written it."""
    return printable(" ".join(str(text).split()))


def printable(text: str) -> str:
    """Remove control characters from a text, except newlines and tabs."""
    return "".join(one if one in "\n\t" or unicodedata.category(one) not in _CONTROLS else _UNKNOWN for one in text)


def brief(value: Any, most: int = 60) -> str:
    """Format a value of a manifest in short, as JSON."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}…"


def spelled(path: Iterable[str | int]) -> str:
    """Format a path as ``kubectl explain`` does, such as ``spec.containers[0].image``; odd keys are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def count(number: int, what: str) -> str:
    """Format a number of things: ``1 task``, ``2 tasks``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def few(words: Sequence[object], most: int = 3) -> str:
    """List the first of many: ``worker-0, worker-1, worker-2 and 6 more``."""
    return ", ".join(map(str, words[:most])) + (f" and {len(words) - most} more" if len(words) > most else "")
