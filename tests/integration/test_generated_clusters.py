"""Generated TFClusters: the API server accepts them or names the field, and the engine handles all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from kubernetes.client import ApiClient
from support.admission import DRY_RUN
from support.generated_clusters import Generated, generate
from support.generated_lives import Case, Findings, names_the_field, run
from support.objects import PODS, Object

_SEED = 8
_AT_ONCE = 4
_BATCH = 250


@dataclass(frozen=True, slots=True)
class _Answer:
    generated: Generated
    status: int
    body: Object


def _post(admin: ApiClient, path: str, body: Object) -> tuple[int, Object]:
    answer = admin.rest_client.pool_manager.request(
        "POST",
        admin.configuration.host + path,
        body=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    return answer.status, json.loads(answer.data)


@pytest.fixture(scope="module", params=[500, pytest.param(5_000, marks=pytest.mark.exhaustive)])
def answers(admin: ApiClient, request: pytest.FixtureRequest) -> list[_Answer]:
    """The response of the API server to each TFCluster, as a dry run."""

    def ask(generated: Generated) -> _Answer:
        return _Answer(generated, *_post(admin, DRY_RUN, generated.manifest))

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(ask, generate(_SEED, request.param)))


def _misjudged(answer: _Answer) -> Iterator[str]:
    faults, body = answer.generated.faults, answer.body
    where = f"{faults} {json.dumps(answer.generated.manifest)[:700]}"
    if answer.status == 201:
        if faults:
            yield f"accepted: {where}"
        return
    if not 400 <= answer.status <= 499:
        yield f"{answer.status} {body}: {where}"
    if not faults:
        yield f"refused: {body.get('message', '')[:700]}: {where}"
        return
    causes = (body.get("details") or {}).get("causes") or ()
    said = "\n".join([body.get("message", ""), *(cause.get("field", "") for cause in causes)])
    if not any(names_the_field(said, fault) for fault in faults):
        yield f"the refusal names none of the fields: {said[:700]}: {where}"


def test_every_rejection_names_the_field(answers):
    """Valid ones are accepted; for those with a fault, a 4xx response names the field."""
    wrong = [one for answer in answers for one in _misjudged(answer)]
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])


@pytest.fixture(scope="module")
def findings(answers: list[_Answer]) -> Findings:
    """The engine's results for all of them."""
    cases = [
        Case(answer.generated, answer.body if answer.status == 201 else answer.generated.manifest, answer.status == 201)
        for answer in answers
    ]
    found = Findings()
    for first in range(0, len(cases), _BATCH):
        run(cases[first : first + _BATCH], found)
    return found


def test_engine_survives_every_cluster(answers, findings, request):
    """No reconcile fails, each has a status; accepted ones have their objects, and invalid ones name the field."""
    accepted = sum(answer.status == 201 for answer in answers)
    plugins = request.config.pluginmanager
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        plugins.getplugin("terminalreporter").write_line(
            f"\n{len(answers)} generated TFClusters: {accepted} accepted, {len(answers) - accepted} refused; "
            f"{findings.met} in the engine ({findings.invalid} InvalidSpec), "
            f"{findings.never_stored} that no server stores"
        )
    assert not findings.wrong, f"{len(findings.wrong)} wrong\n" + "\n".join(findings.wrong[:20])
    assert findings.met + findings.never_stored == len(answers)


def test_every_pod_of_an_accepted_cluster_is_valid(admin, findings):
    def ask(pod: Object) -> str:
        status, body = _post(admin, PODS.path("default") + "?dryRun=All&fieldValidation=Strict", pod)
        return "" if status == 201 else f"{body.get('message')}: {json.dumps(pod)[:700]}"

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        wrong = [words for words in threads.map(ask, findings.pods) if words]
    assert len(findings.pods) > findings.met // 5
    assert not wrong, f"{len(wrong)} of {len(findings.pods)} wrong\n" + "\n".join(wrong[:20])
