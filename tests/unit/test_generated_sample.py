"""A sample of the generated TFClusters in the engine, as an API server with another CRD might store them."""

from __future__ import annotations

from support.generated_clusters import generate
from support.generated_lives import Case, Findings, names_the_field, run

from tfcluster_operator.declaration.parse import InvalidSpecError, is_ours, parse

_COUNT = 200


def test_engine_survives_whatever_is_stored():
    """No reconcile fails, every TFCluster has a status, and invalid ones name the field."""
    findings = Findings()

    run([Case(one, one.manifest, accepted=False) for one in generate(8, _COUNT)], findings)

    assert not findings.wrong, "\n".join(findings.wrong[:20])
    assert findings.met + findings.never_stored == _COUNT
    assert findings.met > 0.95 * _COUNT
    assert findings.invalid > 0.2 * _COUNT


def test_well_formed_spec_is_read_and_a_malformed_one_names_the_field():
    """Of thousands, the operator rejects no valid one, and reports each problem of the others with its path."""
    wrong = []
    invalid = 0
    for one in generate(9, 5_000):
        body = {"metadata": {"name": one.name, "namespace": "default", "uid": "u"}, "spec": one.manifest.get("spec")}
        try:
            if is_ours(body):
                parse(body)
        except InvalidSpecError as error:
            invalid += 1
            if not any(names_the_field(problem, fault) for problem in error.problems for fault in one.faults):
                wrong.append(f"{one.faults}: {error}")

    assert invalid > 1_000
    assert not wrong, "\n".join(wrong[:20])
