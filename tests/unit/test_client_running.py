"""A TFCluster lives as long as the block that needs it, whatever ends the block; others' are left alone."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from support.waiting import GUARD

import tfcluster
from tfcluster import ClusterFailedError, ConflictError, Job, TFCluster, WaitTimeoutError

DIGITS = TFCluster("digits", image="example.test/train:1", workers=Job(replicas=2, max_replicas=3))


def test_it_is_ready_in_the_block_and_gone_after_it(client_world):
    """The handle reads, waits and changes."""
    told = []
    with client_world.client() as client:
        with client.running(DIGITS, timeout=GUARD, tell=told.append) as running:
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


def test_an_interruption_deletes_it_too(client_world):
    """Ctrl-C in a notebook leaves no pods behind."""
    with client_world.client() as client:
        with pytest.raises(KeyboardInterrupt), client.running(DIGITS, timeout=GUARD):
            raise KeyboardInterrupt
        assert client_world.cluster("digits") is None


def test_it_may_be_kept(client_world):
    """Always, or to look at what went wrong."""
    with client_world.client() as client:
        with client.running(DIGITS, keep="on_error", timeout=GUARD):
            pass
        assert client_world.cluster("digits") is None
        with pytest.raises(ValueError, match="x"), client.running(DIGITS, keep="on_error", timeout=GUARD):
            raise ValueError("x")
        assert client_world.cluster("digits") is not None


def test_one_that_was_there_stays(client_world):
    """Two blocks of one name: who created it deletes it, the other leaves it."""
    told = []
    with client_world.client() as client, client.running(DIGITS, timeout=GUARD) as outer:
        with client.running(DIGITS, timeout=GUARD, tell=told.append) as inner:
            assert inner.uid == outer.uid
        assert outer.status().is_ready
    assert "stays at the end" in "".join(told)
    assert client_world.cluster("digits") is None


def test_blocks_that_begin_together_have_one_owner(client_world):
    """The API server says who created it: exactly one block deletes."""
    owners, barrier = [], threading.Barrier(4)

    def run():
        told = []
        with client_world.client() as client:
            barrier.wait()
            with client.running(DIGITS, timeout=GUARD, tell=told.append):
                barrier.wait()
                owners.append(not any("stays at the end" in words for words in told))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert sorted(owners) == [False, False, False, True]


def test_a_later_one_of_the_name_is_not_touched(client_world):
    """Somebody deletes it and creates another: the end of the block deletes nothing, and the handle refuses."""
    with client_world.client() as client:
        with client.running(DIGITS, timeout=GUARD) as running:
            client.delete("digits", wait=True, timeout=GUARD)
            client.apply(DIGITS)
            with pytest.raises(ConflictError, match="created again meanwhile"):
                running.scale(1)
            with pytest.raises(ConflictError):
                running.delete()
            with pytest.raises(ClusterFailedError, match="deleted"):
                running.wait("ready", timeout=GUARD)
        assert client_world.cluster("digits") is not None


def test_one_that_is_being_deleted_is_waited_for(client_world):
    """The next block of the name begins when its pods are gone."""
    with client_world.client() as client:
        with client.running(DIGITS, keep=True, timeout=GUARD) as first:
            client.delete("digits", cascade="foreground")
        with client.running(DIGITS, timeout=GUARD) as second:
            assert second.uid != first.uid


def test_one_that_does_not_become_ready_is_deleted(client_world):
    """The error says what was missing."""
    client_world.at_once(lambda: client_world.nodes.never_ready.add("digits-worker-1"))
    with client_world.client() as client:
        with pytest.raises(WaitTimeoutError, match="did not become ready"), client.running(DIGITS, timeout=2):
            raise AssertionError("the block must not begin")
        assert client_world.cluster("digits") is None


def test_importing_the_package_costs_nothing():
    """No library is imported until a name is used; every public name can be had."""
    code = "import sys, tfcluster; print(sorted({'kubernetes', 'yaml', 'rich', 'click', 'urllib3'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
    assert all(getattr(tfcluster, name).__name__ == name for name in tfcluster.__all__)
    with pytest.raises(AttributeError):
        tfcluster.Nothing  # noqa: B018 - the access is the test


def test_another_word_for_keep_is_refused_before_anything_is_made(client_world):
    """A misspelt word would decide about a deletion: it is refused at once."""
    with client_world.client() as client:
        with pytest.raises(ValueError, match="\"on_error\", not 'always'"):
            client.running(TFCluster("digits", image="tf", workers=1), keep="always")

        assert client.list() == []
