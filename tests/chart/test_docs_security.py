"""docs/security.md says what is so: the operator's rights, and what a restricted namespace takes."""

from __future__ import annotations

import re
from collections import defaultdict

import yaml
from rendering import ROOT
from support.rbac import OPERATOR_RULES, QUEUE_RULES

SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_rights_are_those_of_the_operator():
    """The table of the operator's rights has every resource that its Roles have, with its verbs, and no other."""
    rows = re.search(r"\| resource \| verbs \| why \|\n\|.*\n((?:\|.*\n)+)", SECURITY)[1]
    told = defaultdict(set)
    for resources, verbs in re.findall(r"^\| (.+?) \| (.+?) \|", rows, re.MULTILINE):
        for resource in re.findall(r"`(.+?)`", resources):
            told[resource] |= set(verbs.split(", "))

    leases = told.pop("leases")
    assert leases == {"get", "patch its own; create"}
    assert told == {resource: set(verbs) for _, resource, verbs in (*OPERATOR_RULES, *QUEUE_RULES)}


def examples() -> list[dict]:
    """Give the objects of the document's YAML."""
    blocks = re.findall(r"```yaml\n(.*?)```", SECURITY, re.DOTALL)
    return [found for block in blocks for found in yaml.safe_load_all(block)]


def test_examples_are_a_role_a_binding_and_a_template():
    """The examples are there for the tests on a real API server."""
    assert [found.get("kind") for found in examples()] == ["Role", "RoleBinding", None]
