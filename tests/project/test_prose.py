"""The texts for users are in plain English: a limit on flagged sentences per kind of text.

Limits may only decrease. A failed test prints the sentences.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
#: The replacement, and the pattern.
IDIOMS: Final = {
    "name the actor": r"\b(some|no|every|any)body\b|\bwhoever\b",
    "put the preposition last": r"\b(of|for|to|in|by|from|with|at|on|under) (which|whom)\b",
    "negate the verb": r"\b(has|have|needs?|makes?|is|are) (no|nobody|nothing|none) (?!longer)|\b(no|any) more\b",
    "deleted, continues": r"\b(goes|go|went) on\b|\b(is|are) gone\b|\bpods? (goes|go|went)\b",
    "reported, notified": r"\b(is|are|was|be) told\b|\btells? (of|that|whether)\b",
    "created": r"\b(is|are|was|be) made\b|\bmade (again|anew)\b",
    "reject, permission, CRD": r"\brefus(e|es|ed|al)\b|\b(its|the|your) rights?\b|\bdefinition of the kind\b",
    "immediately, forever, also": r"\bNB:|\bfor ever\b|\bat once\b|\bbesides\b|\bmeanwhile\b|\banew\b|\bseldom\b",
}
#: The maximal number of flagged sentences.
BUDGETS: Final = {"docs": 6, "README and the like": 1, "changelog": 0, "CRD": 0, "chart": 0}


def _markdown(path: Path) -> str:
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)", "X", text).replace("|", ". ")


def _descriptions(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (text for key, text in schema.items() if key == "description" and isinstance(text, str))
        for part in schema.values():
            yield from _descriptions(part)


def _texts(kind: str) -> Iterator[tuple[str, str]]:
    match kind:
        case "docs":
            pages = sorted((ROOT / "docs").rglob("*.md"))
        case "changelog":
            pages = sorted((ROOT / "changelog.d").glob("+*.md"))
        case "README and the like":
            pages = [*sorted(ROOT.glob("*.md")), ROOT / "charts/tfcluster-operator/README.md"]
        case "CRD":
            text = (ROOT / "crds/sources/definition.yaml").read_text(encoding="utf-8")
            yield "crds/sources/definition.yaml", "\n\n".join(_descriptions(yaml.safe_load(text)))
            return
        case _:
            pages = []
            for path in (ROOT / "charts/tfcluster-operator").glob("*/*.*"):
                if path.suffix in {".yaml", ".tpl", ".txt"} and not path.is_symlink():
                    comments = re.findall(r"^ *# ?(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
                    yield path.name, "\n".join(comments)
    yield from ((path.relative_to(ROOT).as_posix(), _markdown(path)) for path in pages)


@pytest.mark.parametrize("kind", BUDGETS)
def test_texts_for_users_are_in_plain_english(kind: str) -> None:
    found = [
        f"{source}: {advice}: {sentence}"
        for source, text in _texts(kind)
        for sentence in re.split(r"(?<=[.!?:])\s+|\n\n|\n(?=[*#])", text)
        for advice, idiom in IDIOMS.items()
        if re.search(idiom, sentence, re.IGNORECASE)
    ]
    assert len(found) <= BUDGETS[kind], "\n".join(found)
