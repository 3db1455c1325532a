"""The benchmark's own decisions: what a sample proves, what is kept of figures and words, and what is measured."""

from __future__ import annotations

import asyncio
import json
from math import comb

import pytest

from bench import book, catalogue, page, pairs, soak
from bench.__main__ import parse
from bench.bare_client import bare_declarations, bare_requests
from bench.book import Provenance, Result
from bench.goals import rate, ratio
from bench.intervals import judge_every, judge_median, median_interval
from bench.observer import Register
from bench.shapes import Shape

#: Every goal: the limits of a measurement, and those that are least ones.
AT_MOST = {
    **{f"tfjob-{shape}": {1} for shape in ("1x100", "1x300", "100x2")},
    "create-1x100": {1.10, 2},
    "create-1x300": {1.10, 2},
    "create-1x2000": {1.10, 2, 80},
    "create-1x5000": {1.10, 2, 120},
    "create-100x2": {1.25, 2},
    "ready-100x100": {2},
    "ready-1000x10": {2},
    "rest-10000": {0, 120},
    "events-10000": {0.05, 0},
    "pass-5000": {100, 50},
    "start-10000": {5, 10, 0},
    "upgrade-10000": {0},
    "lost-1000": {1.15, 2},
    "told-200": {1},
    "delivery-30": {0.4, 0.8},
    "soak": {0},
}
AT_LEAST = {"ready-100x100": {0.9}, "ready-1000x10": {0.9}}
ABOUT = Provenance("2026-01-02", "1 core", "abc")
WORDS = {"introduction": "Words.", "how to read it": "So.", "pairs": "In pairs."}


@pytest.mark.parametrize("count", range(6, 200))
def test_the_interval_holds_as_often_as_it_says_and_is_no_wider_than_needed(count: int) -> None:
    """The probability follows from the binomial distribution: at least 95 %, and less one rank further in."""
    low, high = median_interval(list(range(count, 0, -1)))

    def coverage(rank: int) -> float:
        return 1 - 2 * sum(comb(count, below) for below in range(rank)) / 2**count

    assert high == count + 1 - low
    assert coverage(low) >= 0.95 > coverage(low + 1)


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_readings_prove_nothing(count: int) -> None:
    """Even the smallest and the largest of five enclose the median with less than 95 %."""
    assert median_interval([1.0] * count) is None
    assert judge_median([1.0] * count, 2) == "not proven"


@pytest.mark.parametrize(
    ("readings", "limit", "at_least", "verdict"),
    [
        ([1, 1, 1, 1, 1, 1.1], 1.1, False, "met"),
        ([1, 1, 1, 1, 1, 1.2], 1.1, False, "not proven"),
        ([1.1, 1.2, 1.2, 1.2, 1.2, 1.2], 1.1, False, "not proven"),
        ([1.2, 1.2, 1.2, 1.2, 1.2, 1.2], 1.1, False, "missed"),
        ([0.9, 1, 1, 1, 1, 1], 0.9, True, "met"),
        ([0.8, 1, 1, 1, 1, 1], 0.9, True, "not proven"),
        ([0.8, 0.8, 0.8, 0.8, 0.8, 0.8], 0.9, True, "missed"),
        # An outlier on each side does not matter where there are enough readings.
        ([0.1, *[1.0] * 13, 9.9], 1.1, False, "met"),
    ],
)
def test_the_verdict_needs_the_whole_interval(readings, limit, at_least, verdict) -> None:
    assert judge_median(readings, limit, at_least=at_least) == verdict


def test_one_run_beyond_a_limit_on_every_run_misses_it() -> None:
    """What must never happen is judged by the worst run, and by none if there was none."""
    assert judge_every([0, 0, 0], 0) == "met"
    assert judge_every([0, 1, 0], 0) == "missed"
    assert judge_every([2, 1], 1, at_least=True) == "met"
    assert judge_every([], 0) == "not proven"


def test_ratios_are_taken_pair_by_pair() -> None:
    """The median of the pairs' ratios is judged, which the ratio of medians may hide; a rate is the inverse."""
    result = Result("create-1x100", series={"ours_s": [1, 4, 9, 1, 1, 1], "bare_s": [1, 2, 3, 1, 1, 1]})
    assert ratio(1.1).readings(result) == [1, 2, 3, 1, 1, 1]
    assert rate(0.9).readings(result)[:3] == [1, 0.5, pytest.approx(1 / 3)]
    assert ratio(1.1).judge(result) == "not proven"


def test_every_goal_has_its_measurement() -> None:
    goals = {(name, limit, False) for name, limits in AT_MOST.items() for limit in limits}
    goals |= {(name, limit, True) for name, limits in AT_LEAST.items() for limit in limits}
    assert {(each.name, goal.limit, goal.at_least) for each in catalogue.ALL for goal in each.goals} == goals
    assert len(catalogue.BY_NAME) == len(catalogue.ALL)


def test_every_text_is_of_a_measurement_or_of_the_page() -> None:
    """A text under a name that nobody asks for would be lost in silence."""
    found = page.texts(page.TEXTS.read_text(encoding="utf-8"))
    assert set(found) - set(catalogue.BY_NAME) <= {*WORDS, "tfjob", "earlier"}


def test_the_page_is_made_of_the_book() -> None:
    words = page.texts(page.TEXTS.read_text(encoding="utf-8"))
    assert page.PAGE.read_text(encoding="utf-8") == page.page(book.load(), words)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "create-9x9"],
        ["--pairs", "0"],
        ["--scale", "0"],
        ["--scale", "2"],
        ["--write", "--scale", "0.5"],
        ["--only", "tfjob-1x100"],
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, capsys) -> None:
    """A wrong name, or figures of another size in the docs, are noticed before anything is measured."""
    with pytest.raises(SystemExit):
        parse(arguments)
    assert capsys.readouterr().err


def test_the_bare_client_sends_the_same_bodies() -> None:
    """Each keeps its size but for its owner, belongs to nobody whom the operator watches, and pods come last."""
    owner = [{"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "name": "c", "uid": "u"}]
    metadata = {"name": "c", "labels": {"tfcluster.dev/cluster": "c"}, "ownerReferences": owner}
    shared = {"metadata": {"name": "resolver", "labels": {"tfcluster.dev/resolver": ""}}}
    posted = [
        ("/api/v1/namespaces/n/pods", json.dumps({"metadata": metadata}).encode()),
        ("/api/v1/namespaces/n/configmaps", json.dumps(shared).encode()),
        ("/api/v1/namespaces/n/events", b"{}"),
    ]
    made = bare_requests(posted, owner={"metadata": {"name": "o", "uid": "v"}}, suffix="-1")
    assert [request.path for request in made] == ["/api/v1/namespaces/n/configmaps", "/api/v1/namespaces/n/pods"]
    first, last = (json.loads(request.body)["metadata"] for request in made)
    assert first == {"name": "resolver-1", "labels": {"tfbaselin.dev/resolver": ""}}
    assert last["labels"] == {"tfbaselin.dev/cluster": "c"}
    assert [(each["kind"], each["uid"]) for each in last["ownerReferences"]] == [("ConfigMap", "v")]


def test_the_bare_client_declares_what_users_declare() -> None:
    """Its TFClusters are of a copy of the definition, which no operator watches."""
    manifests = Shape(2, 2).manifests("n")
    made = bare_declarations(manifests)
    assert {request.path for request in made} == {"/apis/tfbaselin.dev/v1alpha1/namespaces/n/tfclusters"}
    assert [json.loads(request.body)["spec"] for request in made] == [each["spec"] for each in manifests]


def test_each_pair_has_both_sides_in_either_order() -> None:
    """Chance decides who begins, so over many pairs both do."""
    order: list[str] = []

    def side(name: str, seconds: float):
        async def run() -> pairs.Run:
            order.append(name)
            return pairs.Run(seconds, 0.5, 0.25)

        return run

    result = Result("x")
    asyncio.run(pairs.take_pairs(result, side("ours", 2.0), side("bare", 1.0), pairs=64))
    assert result.series["ours_s"] == [2.0] * 64
    assert result.series["bare_server_cpu_s"] == [0.25] * 64
    assert all(set(order[at : at + 2]) == {"ours", "bare"} for at in range(0, 128, 2))
    assert set(order[::2]) == {"ours", "bare"}


def test_what_any_controller_takes_stands_beside_what_the_operator_takes() -> None:
    """The ratio of a bare client that is watched is that of its own pairs; where it was not measured there is none."""
    result = Result("create-1x100")
    for _ in range(6):
        for of, seconds in (("ours", 3.0), ("bare", 2.0), ("watched", 2.5)):
            result.add(**{f"{of}_s": seconds, f"{of}_cpu_s": 0.5, f"{of}_server_cpu_s": 1.0})
    without = Result("create-1x300", {name: of for name, of in result.series.items() if "watched" not in name})
    told = page.pairs({"create-1x100": result, "create-1x300": without})
    assert "| `create-1x100` | 3 | 2 | **1.5** (1.5 to 1.5) | 1.25 | 0.5 |" in told
    assert "| `create-1x300` | 3 | 2 | **1.5** (1.5 to 1.5) | - | 0.5 |" in told


def test_the_bare_client_gets_its_own_best_concurrency() -> None:
    """The median of some runs decides, so that one lucky run does not."""
    taken = {16: [3.0, 3.0, 3.0], 32: [2.0, 9.0, 2.0], 64: [0.1, 4.0, 4.0]}

    async def run(concurrency: int) -> float:
        return taken[concurrency].pop()

    assert asyncio.run(pairs.best_concurrency(run)) == 32
    assert taken == {16: [], 32: [], 64: []}


def test_growth_leaves_out_the_start() -> None:
    """What caches take in the first quarter is no leak; what grows afterwards is seen."""
    assert soak.growth([10, 20, 30, 40, 40, 40, 40, 40, 40, 40, 40, 40]) == 1
    assert soak.growth([40, 40, 40, 40, 40, 40, 60, 60, 80, 80, 80, 80]) == 2


def sample_book() -> dict[str, Result]:
    """Return a book with figures of each kind that is drawn."""
    made = {}
    for tasks, bare in ((100, 0.2), (300, 0.7), (2000, 3.4), (5000, 9.0)):
        name = f"create-1x{tasks}"
        readings = [bare * (1.04 + 0.02 * run) for run in range(6)]
        made[name] = Result(name, {"ours_s": readings, "bare_s": [bare] * 6}, {"tasks": tasks}, ABOUT)
    for tasks, default, tuned in ((100, 9.8, 0.9), (300, 29.9, 2.7)):
        name = f"tfjob-1x{tasks}"
        series = {"ours_s": [0.3] * 6, "default_s": [default] * 6, "tuned_s": [tuned] * 6}
        calls = {"ours_calls": [107.0] * 6, "default_calls": [226.0] * 6}
        made[name] = Result(name, {**series, **calls}, {"tasks": tasks}, ABOUT)
    made["create-100x2"] = Result("create-100x2", {"ours_s": [2.0] * 6, "bare_s": [1.0] * 6}, {"tasks": 200}, ABOUT)
    made["ready-100x100"] = Result("ready-100x100", {"ours_s": [60.0] * 6, "bare_s": [61.0] * 6}, {"tasks": 9}, ABOUT)
    return made


def test_tfjob_stands_beside_the_operator() -> None:
    """The table has the times of all three, and how many times as long TFJob takes."""
    made = page.page(sample_book(), {**WORDS, "tfjob": "Side by side."})
    assert "Side by side." in made
    assert "| `tfjob-1x100` | 0.3 | 9.8 | 0.9 | 32.7 (32.7 to 32.7) | 3 (3 to 3) | 107 | 226 | 6 |" in made


def seen_pod(kind: str, name: str, *, ready: bool) -> bytes:
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}, "status": status}}).encode()


def test_a_register_knows_who_is_ready_now() -> None:
    """A pod that is not ready any more, or gone, does not count; one that is ready again counts from then on."""
    register = Register(lambda pod: pod.is_ready)

    async def story() -> float:
        for kind, name, ready in (
            ("ADDED", "a", True),
            ("ADDED", "b", True),
            ("MODIFIED", "a", False),
            ("DELETED", "b", True),
        ):
            register.take(seen_pod(kind, name, ready=ready))
        assert register.since == {}
        waiting = asyncio.create_task(register.holds(2))
        await asyncio.sleep(0)
        register.take(seen_pod("MODIFIED", "a", ready=True))
        assert not waiting.done()
        register.take(seen_pod("ADDED", "c", ready=True))
        return await waiting

    moment = asyncio.run(story())
    assert set(register.since) == {"a", "c"}
    assert moment == register.since["c"]
