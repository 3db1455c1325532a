"""A TFCluster lives as long as the block that needs it, and the page on the Python client can be followed."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.guide import snippets
from support.waiting import GUARD

import tfcluster
from tfcluster import ClusterFailedError, ConflictError, Job, TFCluster, WaitTimeoutError
from tfcluster.kube.api import TFCLUSTERS

DIGITS = TFCluster("digits", image="example.test/train:1", workers=Job(replicas=2, max_replicas=3))


def test_it_is_ready_in_the_block_and_gone_after_it(client_world):
    told = []
    with client_world.client() as client:
        with client.running(DIGITS, timeout=GUARD, tell=told.append) as running:
            with client.running(DIGITS, timeout=GUARD, tell=told.append) as inner:
                assert inner.uid == running.uid
            assert "stays at the end" in "".join(told)
            status = running.status()
            assert (status.is_ready, status.verdict, status.restarts) == (True, None, 0)
            assert status.conditions["Ready"]
            assert status.conditions["Ready"].reason == "AllTasksReady"
            assert not status.conditions["Failed"]
            assert [one.name for one in status.tasks] == ["worker-0", "worker-1"]
            assert status.task("worker", 1).pod == "digits-worker-1"
            running.scale(3, wait=True, timeout=GUARD)
            assert running.status().epoch > status.epoch
            running.restart("worker/0", wait=True, timeout=GUARD)
            assert next(running.events()).reason == "Created"
        assert client_world.cluster("digits") is None
    assert told


def test_an_interruption_deletes_it_too_unless_it_is_kept(client_world):
    with client_world.client() as client:
        with pytest.raises(KeyboardInterrupt), client.running(DIGITS, timeout=GUARD):
            raise KeyboardInterrupt
        assert client_world.cluster("digits") is None
        with client.running(DIGITS, keep="on_error", timeout=GUARD):
            pass
        assert client_world.cluster("digits") is None
        with pytest.raises(ValueError, match="x"), client.running(DIGITS, keep="on_error", timeout=GUARD):
            raise ValueError("x")
        assert client_world.cluster("digits") is not None


def test_blocks_that_begin_together_have_one_owner(client_world):
    owners, barrier = [], threading.Barrier(4, timeout=GUARD)

    def run(_):
        told = []
        with client_world.client() as client:
            barrier.wait()
            with client.running(DIGITS, timeout=GUARD, tell=told.append):
                barrier.wait()
                owners.append(not any("stays at the end" in words for words in told))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(4)))
    assert sorted(owners) == [False, False, False, True]


def test_a_later_one_of_the_name_is_not_touched(client_world):
    with client_world.client() as client:
        with client.running(DIGITS, timeout=GUARD) as running:
            client.delete("digits", wait=True, timeout=GUARD)
            client.apply(DIGITS)
            with pytest.raises(ConflictError, match="created again"):
                running.scale(1)
            with pytest.raises(ConflictError):
                running.delete()
            with pytest.raises(ClusterFailedError, match="deleted"):
                running.wait("ready", timeout=GUARD)
        assert client_world.cluster("digits") is not None
        client.delete("digits", wait=True, timeout=GUARD)
        # One that is being deleted is waited for.
        with client.running(DIGITS, keep=True, timeout=GUARD) as first:
            client.api.delete(TFCLUSTERS, "digits", propagation="Foreground")
        with client.running(DIGITS, timeout=GUARD) as second:
            assert second.uid != first.uid


def test_one_that_does_not_become_ready_is_deleted(client_world):
    client_world.keep_unready("digits-worker-1")
    with client_world.client() as client:
        with pytest.raises(ValueError, match="\"on_error\", not 'always'"), client.running(DIGITS, keep="always"):
            raise AssertionError("the block must not begin")
        assert client.list() == [], "a misspelt word would decide about a deletion"
        with pytest.raises(WaitTimeoutError, match="did not become ready"), client.running(DIGITS, timeout=2):
            raise AssertionError("the block must not begin")
        assert client_world.cluster("digits") is None


@pytest.mark.parametrize(
    ("module", "costly"),
    [("tfcluster", {"kubernetes", "yaml", "rich", "click", "urllib3"}), ("tfcluster.commands.status", {"kubernetes"})],
)
def test_import_is_cheap(module, costly):
    code = f"import sys, {module}; print(*{costly} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_package_has_all_its_names():
    assert all(getattr(tfcluster, name).__name__ == name for name in tfcluster.__all__)
    with pytest.raises(AttributeError):
        tfcluster.Nothing  # noqa: B018 - the access is the test


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "python-client.md"


def test_page_can_be_followed(client_world, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", str(client_world.kubeconfig))
    names = {"__name__": "__main__"}
    printed = {}
    for snippet in snippets(PAGE):
        exec(compile(snippet.text, str(snippet), "exec"), names)  # noqa: S102 - our own page
        printed[snippet.line] = capsys.readouterr().out
        assert all(words in printed[snippet.line] for words in snippet.printed()), snippet
    names["client"].close()
    declared, block, steps, wrong = printed.values()
    assert "maxReplicas: 6" in declared
    assert "worker-3 Ready mnist-worker-3" in block
    assert "New: worker-2, worker-3" in steps
    assert "cluster ViewChanged updated" in steps  # what was done in the last second may be told a second later
    assert "TFCluster mnist not found" in wrong
