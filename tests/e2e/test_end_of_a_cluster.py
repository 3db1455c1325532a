"""The end of a cluster whose pods are to stay."""

import pytest
from support.world import task_names

pytestmark = pytest.mark.exhaustive

TASKS = task_names("c", chief=1, worker=2)


def test_orphaned_pods_run_on(running, kubectl):
    uids = running.uids()

    deleted = kubectl("-n", running.namespace, "delete", "tfcluster", "c", "--cascade=orphan")
    assert deleted.returncode == 0, deleted.stderr
    # The operator creates this one after the event of the other's end.
    running.launch_listeners("later", {"worker": {"replicas": 0}})
    running.await_ready("later")

    assert running.uids() == uids
    assert running.call("c-chief-0", map(running.address, TASKS)) == {running.address(pod): pod for pod in TASKS}
