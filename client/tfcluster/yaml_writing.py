"""Writing data as YAML, which every reader takes for the same: Kubernetes', and those of YAML 1.1 and 1.2."""

from __future__ import annotations

from typing import Any

import yaml

from tfcluster.manifest_text import reads_as_text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # libyaml's is there, or not
    """Quotes what some reader takes for no text."""


def _of_text(dumper: Any, text: str) -> yaml.Node:
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", text, None if reads_as_text(text) else "'")
    return node


_Dumper.add_representer(str, _of_text)


def write(*documents: Any, width: int = 80) -> str:
    """Write documents of dicts, lists, texts and numbers."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)
    return text
