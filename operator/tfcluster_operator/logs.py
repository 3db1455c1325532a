"""The log: one line per outcome, as text or as JSON; docs/operate/operating.md has examples."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

Format = Literal["text", "json"]
FORMATS: Final[tuple[Format, ...]] = ("text", "json")

#: kopf logs a line for each event, and a traceback for errors that kopf_watch logs in one line.
_NOISY: Final = {"aiohttp": logging.WARNING, "kopf": logging.CRITICAL}


def begin(level: str, form: Format) -> None:
    """Write the log of the whole process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(capture=True)
    if level != "debug":
        for name, least in _NOISY.items():
            logging.getLogger(name).setLevel(least)


class Text(logging.Formatter):
    """Time, level, logger and message, then the fields as ``name=value``; a traceback follows in its own lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the base class
        """Return the line of a record."""
        fields = [f"{name}={_plain(value)}" for name, value in vars(record).get("fields", {}).items()]
        return " ".join([f"{_time(record)} {record.levelname:7} {record.name}: {record.message}", *fields])


class Json(logging.Formatter):
    """One object per line: time, level, logger, message and the fields; a traceback is the field ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **vars(record).get("fields", {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{count}" for name, count in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
