"""A running ParameterServerStrategy program gains, loses and replaces tasks: real processes, one program for all."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from loopback_cluster import released
from running_program import RunningProgram


def test_closures_that_are_cancelled_cancel_nothing_else(program: RunningProgram):
    """Cancelling the functions of one thread, because a closure failed, does not affect those of other threads."""
    value = program.do(
        """
from tensorflow.python.eager import cancellation
resize(coordinator, resolver, timeout=60)
manager, inside, over = cancellation.CancellationManager(), threading.Event(), threading.Event()
manager.start_cancel()
def cancelled():
    with cancellation.CancellationManagerContext(manager):
        inside.set()
        over.wait()
thread = threading.Thread(target=cancelled)
thread.start()
inside.wait()
try:
    result = int(tf.function(process_id)())
finally:
    over.set()
    thread.join()
"""
    )

    assert value > 0


def test_functions_wait_for_a_change_of_the_cluster(program: RunningProgram):
    """A function's first call waits for the change; dropping a function does not wait."""
    program.do("resize(coordinator, resolver, timeout=60)")
    third = program.grow()

    told = program.do(
        f"""
import gc
from tensorflow.python.eager import context
order, change = [], context.Context.update_server_def
dropped = tf.function(process_id)
dropped()
name = dropped.get_concrete_function().name
adding = threading.Thread(target=lambda: (tf.function(process_id)(), order.append("added")))

def drop():
    global dropped
    dropped = None
    gc.collect()

def update(self, server_def):
    if not order:
        order.append("begun")
        adding.start()
        adding.join(1)
        dropping = threading.Thread(target=drop)
        dropping.start()
        dropping.join()
        change(self, server_def)
        order.append("changed")
    else:
        change(self, server_def)

context.Context.update_server_def = update
change_made = resized()
adding.join()
context.Context.update_server_def = change
result = [order, change_made[0], context.context().has_function(name), takes({third})["traces"]]
"""
    )

    assert told == [["begun", "changed", "added"], ["/job:worker/task:2"], False, 1]


def test_dataset_made_later_has_a_value_for_every_worker(program: RunningProgram, third: int):
    told = program.do("later = dataset()\nresult = tell(schedule(100, of=later))")
    assert told["gain"] == 100
    processes = {third, *(program.pid("worker", index) for index in (0, 1))}
    program.do(f"while not {processes} <= set(tell(schedule(30, of=later))['where']):\n    pass\ndel later")


def test_worker_that_stays_busy_stays(program: RunningProgram, third: int, tmp_path: Path):
    """A worker that does not finish in time keeps everything; when it has finished, it is removed."""
    program.do(f"tell(schedule(30))\nvalues = [coordinator.schedule(until, args=('{tmp_path}/go',)) for _ in range(3)]")
    address = program.shrink()

    refused = program.do(
        """
try:
    resize(coordinator, resolver, timeout=1)
except errors.TasksBusyError as error:
    result = [str(error), worker_threads()]
"""
    )

    assert "did not finish their closures. Nothing was changed" in refused[0]
    assert len(refused[1]) == 3
    (tmp_path / "go").touch()
    told = program.do(f"coordinator.join()\nresult = [tell([])['gain'], takes({third})]")
    assert told[0] == 3
    assert told[1]["gaps"] == []
    assert told[1]["firsts"][str(third)] > 0  # its iterator continued
    assert program.do("result = resized()")[1] == ["/job:worker/task:2"]
    released(address).unlink()


@pytest.mark.parametrize("count", [0, 90])
def test_removed_worker_that_hangs_does_not_block(program: RunningProgram, third: int, count: int):
    """With a closure or without: TensorFlow would send it a goodbye, and all others would wait for it."""
    program.do("result = tell(schedule(30))")
    os.kill(third, signal.SIGSTOP)
    os.waitid(os.P_PID, third, os.WSTOPPED)  # until then it can still run a closure
    program.shrink()

    sizes, told, threads = program.do(
        f"""
values = schedule({count})
result = [resized(), tell([*values, *schedule(30)]), worker_threads()]
"""
    )

    assert sizes == [[], ["/job:worker/task:2"], [], []]
    assert told["gain"] == sum(told["where"].values()) == count + 30
    assert len(threads) == 2


def test_worker_at_another_address_takes_over(program: RunningProgram, third: int):
    program.do("result = tell(schedule(60))")
    cluster = program.cluster
    cluster.addresses["worker"].pop()
    replaced = program.grow()

    told = program.do(
        """
values = schedule(300)
result = [resized(), tell(values), takes(REPLACED)]
""".replace("REPLACED", str(replaced))
    )

    sizes, during, after = told
    assert sizes == [[], [], ["/job:worker/task:2"], []]
    assert during["gain"] == 300
    assert str(third) not in after["where"]
    assert after["traces"] == 1


@pytest.mark.usefixtures("third")
def test_killed_worker_takes_closures_again(program: RunningProgram):
    cluster = program.cluster
    for index in (1, 2):
        cluster.kill("worker", index)
    told = program.do("values = schedule(100)\nresult = tell(values)")
    assert sum(told["where"].values()) == 100

    program.serve_again(1)
    program.serve_again(2)


def test_worker_that_lacks_a_function_is_added_again(program: RunningProgram):
    """TensorFlow sends its functions to a worker that it adds, once: one is missing if the connection broke then."""
    scheduled, gain, updates = program.do(
        """
from tensorflow.python.distribute.coordinator import cluster_coordinator
from tfcluster_resolver._tensorflow import private
resize(coordinator, resolver, timeout=60)
tell(schedule(30))
execute_on, update, updates = cluster_coordinator.Closure.execute_on, private.update, []
lacking = ["/job:worker/replica:0/task:1: 'f' is neither a type of a primitive operation nor a name of a function "
           "registered"]

def fail_once(closure, worker):
    if worker.worker_index == 1 and lacking:
        raise tf.errors.NotFoundError(None, None, lacking.pop())
    execute_on(closure, worker)

def noted(wanted):
    updates.append([len(job.tasks) for job in wanted.cluster.job if job.name == "worker"])
    update(wanted)

cluster_coordinator.Closure.execute_on, private.update = fail_once, noted
values = schedule(30)
while lacking:
    values += schedule(1)
result = [len(values), tell(values)["gain"], updates]
while len(updates) < 2:
    pass
cluster_coordinator.Closure.execute_on, private.update = execute_on, update
"""
    )

    assert gain == scheduled
    assert updates == [[1], [2]]
    program.do(f"takes({program.pid('worker', 1)})")


def test_new_ps_holds_new_variables_and_then_stays(program: RunningProgram):
    """Existing variables stay in place; a ps is removed only when it is empty."""
    program.grow("ps")
    told = program.do(
        """
before = total.device
change = resized()
with strategy.scope():
    new = [tf.Variable(1.0, name=f"new{at}") for at in range(2)]
@tf.function
def both():
    for one in new:
        one.assign_add(total)
    return process_id()
values = [coordinator.schedule(both) for _ in range(4)]
coordinator.join()
result = [change[0], before == total.device, sorted(one.device for one in new)]
"""
    )
    assert told[0] == ["/job:ps/task:1"]
    assert told[1]
    assert [device.partition("/device")[0] for device in told[2]] == [
        "/job:ps/replica:0/task:0",
        "/job:ps/replica:0/task:1",
    ]

    program.shrink("ps")
    *changed, refused = program.do("result = resized()")
    assert changed == [[], [], []]
    assert "/job:ps/task:1" in refused[0]
    assert "it holds variable new" in refused[0]
    assert program.do("del new, both, values\nresult = resized()") == [[], ["/job:ps/task:1"], [], []]


@pytest.mark.usefixtures("third")
def test_filters_hold_for_a_late_worker(program: RunningProgram):
    message = program.do(
        """
@tf.function
def elsewhere():
    with tf.device("/job:worker/task:0"):
        return tf.random.uniform([]) + 1.0
try:
    with tf.device("/job:worker/task:2"):
        elsewhere()
except tf.errors.InvalidArgumentError as error:
    result = error.message
"""
    )

    assert "was explicitly assigned to /job:worker/task:0" in message
    assert "/job:ps/replica:0/task:0" in message


def test_task_without_declared_filters_is_rejected(program: RunningProgram):
    cluster = program.cluster
    cluster.serve(("ps", cluster.add_task("ps")))
    cluster.add_task("ps")  # the filters were declared up to the second
    program.publish()

    *changed, (refused,) = program.do("result = resized()")

    assert changed == [["/job:ps/task:1"], [], []]
    assert "/job:ps/task:2" in refused
    assert "has no device filters" in refused


def test_concurrent_resizes_are_both_correct(program: RunningProgram, third: int):
    told = program.do(
        f"""
jobs = {program.cluster.addresses}
specs = [{{**jobs, "worker": jobs["worker"][:count]}} for count in (2, 3)]
given = [TFClusterResolver.from_spec(spec, "chief", 0) for spec in specs]
raised = []
def again(which):
    try:
        for at in range(4):
            resize(coordinator, given[(which + at) % 2], timeout=60)
    except Exception as error:
        raised.append(repr(error))
threads = [threading.Thread(target=again, args=(which,)) for which in (0, 1)]
values = schedule(200)
for thread in threads: thread.start()
for thread in threads: thread.join()
resize(coordinator, resolver, timeout=60)
result = [raised, tell(values), worker_threads()]
"""
    )
    program.do(f"takes({third})")

    raised, during, threads = told
    assert raised == []
    assert during["gain"] == 200
    assert len(threads) == 3


def test_failing_closure_during_a_resize_still_raises(program: RunningProgram):
    third = program.grow()

    told = program.do(
        """
@tf.function
def wrong():
    tf.debugging.assert_less(process_id(), 0, message="wrong on purpose")
values = schedule(50) + [coordinator.schedule(wrong)]
change = resized()
try:
    coordinator.join()
except tf.errors.InvalidArgumentError as error:
    raised = error.message
tell([])
result = [change[0], raised, tell(schedule(90))]
"""
    )
    program.do(f"takes({third})")

    assert told[0] == ["/job:worker/task:2"]
    assert "wrong on purpose" in told[1]
    assert told[2]["gain"] == 90


class Half(threading.Thread):
    """A task that hangs in the middle: it sends gRPC's greeting, to TensorFlow last or not at all, and nothing more."""

    def __init__(self, address: str, *, connects: bool) -> None:
        super().__init__(daemon=True)
        self._connects, self._hung = connects, False
        host, _, port = address.rpartition(":")
        self._socket = socket.create_server((host, int(port)))
        self._connections: list[socket.socket] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                while len(begin := connection.recv(27, socket.MSG_PEEK)) not in {0, 27}:
                    pass
                tensorflow = begin[24:27] != b"\0\0\0"  # TensorFlow sends settings, our check sends none
                if not self._hung and (self._connects or not tensorflow):
                    connection.sendall(b"\0\0\0\4\0\0\0\0\0")
                self._hung = self._hung or tensorflow
            except OSError:
                return

    def die(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # ends accept(), which close() does not
        self._socket.close()
        self.join()
        for connection in self._connections:
            connection.close()


def test_new_task_that_hangs_in_the_middle_is_left_out(program: RunningProgram):
    cluster = program.cluster
    index = cluster.add_task("worker")
    half = Half(cluster.addresses["worker"][index], connects=True)
    program.publish()

    told = program.do("values = schedule(60)\nresize(coordinator, resolver, timeout=60)\nresult = tell(values)")

    assert told["gain"] == 60
    half.die()
    program.serve_again(index)


def test_resize_ends_while_tensorflow_waits(program: RunningProgram):
    """The error says so; when the task listens after all, the change is applied, and the next resize reports it."""
    cluster = program.cluster
    index = cluster.add_task("worker")
    half = Half(cluster.addresses["worker"][index], connects=False)
    program.publish()

    told = program.do(
        """
result = None
for limit in (3, 12, 48):  # on a busy machine TensorFlow is not asked within a short one
    try:
        resize(coordinator, resolver, timeout=limit)
    except errors.TasksUnreachableError as error:
        if "TensorFlow did not change its cluster in time" in str(error):
            result = [str(error), tell(schedule(60))["gain"]]
            break
"""
    )

    assert "call resize() again to wait for it" in told[0]
    assert told[1] == 60
    half.die()
    (server,) = cluster.serve(("worker", index))
    made = program.do("result = sizes(resize(coordinator, resolver, timeout=120))\nassert len(worker_threads()) == 3")
    assert made == [["/job:worker/task:2"], [], []]
    program.do(f"takes({server.pid})")


def test_table_for_a_hung_worker_does_not_block_others(program: RunningProgram):
    """The data of a table is not sent to a worker under Python's lock: other workers and threads continue."""
    program.do("resize(coordinator, resolver, timeout=60)\nwhile len(tell(schedule(12))['where']) < 2:\n    pass")
    process = program.cluster.process("worker", 1)
    process.send_signal(signal.SIGSTOP)
    try:
        program.do(
            """
with strategy.scope():
    other = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [3]), -20)
values = schedule(20)
while not all(value._status_available_event.is_set() for value in values):
    time.sleep(0.01)
"""
        )
    finally:
        process.send_signal(signal.SIGCONT)
    assert len(program.do("result = tell(values)")["where"]) == 1
    program.do(f"takes({process.pid})")


def test_task_that_never_listens_leaves_the_cluster_unchanged(program: RunningProgram):
    """A task that does not listen is awaited until the timeout; the error names it, and nothing was changed."""
    program.cluster.add_task("worker")
    program.publish()

    told = program.do(
        """
try:
    resize(coordinator, resolver, timeout=1)
except errors.TasksUnreachableError as error:
    result = [str(error), [str(one) for one in error.missing], worker_threads(), tell(schedule(30))['gain']]
"""
    )

    assert "Nothing was changed" in told[0]
    assert len(told[1]) == 1
    assert "/job:worker/task:2" in told[1][0]
    assert "refused" in told[1][0]
    assert len(told[2]) == 2
    assert told[3] == 30


def test_worker_with_another_gpu_count_is_rejected(program: RunningProgram):
    """A worker with another number of GPUs than the strategy was built for is not added, and TensorFlow drops it."""
    program.grow()

    told = program.do(
        """
strategy.extended._num_gpus_per_worker = 1  # as if the other workers had one; there is no other way on this machine
change = resized()
strategy.extended._num_gpus_per_worker = 0
result = [change, worker_threads(), tell(schedule(30))["gain"]]
while any("/job:worker/replica:0/task:2" in one.name for one in tf.config.list_logical_devices()):
    pass
"""
    )

    (*changed, refused), threads, gain = told
    assert changed == [[], [], []]
    assert "/job:worker/task:2" in refused[0]
    assert "another number of GPUs than the 1 of the strategy" in refused[0]
    assert len(threads) == 2
    assert gain == 30
