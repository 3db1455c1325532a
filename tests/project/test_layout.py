"""The layout of the sources: mistakes that break imports or hide decisions."""

import ast
import re
from pathlib import Path

from tfcluster_operator.declaration import reasons

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "operator"


def test_operator_folder_is_not_a_package():
    """An __init__.py in operator/ would hide the standard library's module from every program started here."""
    assert not (SOURCES / "__init__.py").exists()
    assert [path.name for path in SOURCES.glob("*.py")] == []
    assert sorted(path.name for path in SOURCES.iterdir() if path.name != "__pycache__") == ["tfcluster_operator"]


def test_every_reason_is_used_distinct_and_in_camel_case():
    """An unused reason misleads users with alerts on it; two names for one reason are one too many."""
    declared = {name: value for name, value in vars(reasons).items() if name.isupper()}
    used = {
        node.attr
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "reasons"
    }
    assert set() == set(declared) - used
    assert len(set(declared.values())) == len(declared)
    assert [value for value in declared.values() if not (value.isalpha() and value[0].isupper())] == []


def test_the_group_is_spelled_in_one_place_only():
    """No label, annotation or API group of ours is a literal outside of naming.py."""
    spelled = [
        str(path.relative_to(ROOT))
        for path in SOURCES.rglob("*.py")
        if re.search(r"tfcluster\.dev|app\.kubernetes\.io", path.read_text(encoding="utf-8"))
    ]
    assert spelled == ["operator/tfcluster_operator/declaration/naming.py"]
