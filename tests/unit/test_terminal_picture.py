"""The pictures of terminals in the docs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
TAGS = {"svg", "title", "style", "rect", "path", "circle", "text", "defs", "g", "use"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["demo.svg", "demo-kubernetes.svg", "status-watch.svg"])
def test_doc_pictures_are_small_and_self_contained(name):
    """A page stays fast, and a reader's browser loads no other file for a font, a script or a picture."""
    text = (PICTURES / name).read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - what our own code has written

    assert len(text.encode()) < 150_000
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= TAGS
    assert not re.search(r"url\(|@import|@font-face|href=\"[^#]", text)
