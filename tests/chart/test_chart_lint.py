"""`make lint-chart`: the linters' findings, and the exceptions."""

from dataclasses import replace

import pytest

from scripts.chart_lint import EXCEPTIONS, Exempted, Finding, judge, read_exceptions

LIMIT = Finding("CKV_K8S_11", "CPU limits should be set", "Deployment.home.r", "default")
EXCEPTED = Exempted("CKV_K8S_11", r"Deployment\.home\..*", "It throttles.")
OTHERS = [
    replace(LIMIT, check="CKV_K8S_12"),
    replace(LIMIT, resource="Pod.home.r"),
    replace(LIMIT, resource="Other.Deployment.home.r"),
]


def test_findings_without_an_exception_are_reported():
    """An exception covers its check in the named objects, and must cover something; all else is reported."""
    assert judge([LIMIT, replace(LIMIT, resource="Deployment.home.s"), *OTHERS], [EXCEPTED]) == [*map(str, OTHERS)]
    assert str(OTHERS[0]) == "CKV_K8S_12 of Deployment.home.r with default values: CPU limits should be set"
    told = r"lint-exceptions.yaml: CKV_K8S_11 of Deployment\.home\..* excepts nothing: remove it"
    assert judge([], [EXCEPTED]) == [told]


def test_each_exception_has_a_reason():
    with pytest.raises(SystemExit, match="no reason is given for CKV_K8S_1"):
        read_exceptions("[{check: CKV_K8S_1, resources: x, reason: ' '}]")
    assert read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
