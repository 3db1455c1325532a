"""The commands inside a pod: what they print, and with which code they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import GUARD
from unit.refusing_address import refusing_address

from local_kubernetes.ports import free_ports
from tfcluster_resolver import TFClusterResolver, contract, errors, serve, tf_config
from tfcluster_resolver.__main__ import COMMANDS, main
from tfcluster_resolver.commands.command import explain_codes
from tfcluster_resolver.errors import ArgumentTypeError
from tfcluster_resolver.waiting.probes import Probes

ROOT = Path(__file__).resolve().parent.parent.parent
GPU = "nvidia.com/gpu"
VIEW = contract.View(
    name="c",
    namespace="n",
    uid="u",
    epoch=4,
    rpc_layer="grpc",
    jobs={"chief": ("c0:1",), "worker": ("w0:1", "w1:1")},
    device_filters={"worker": (contract.FilterRange(0, 4, ("/job:chief", "/job:ps")),)},
    accelerators={"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 1}})},
)


@pytest.fixture
def in_pod(tmp_path, monkeypatch):
    """This process is the pod of worker 1, on a machine without accelerators."""
    publish(tmp_path, VIEW)
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(tmp_path))
    monkeypatch.setenv(contract.ENV_JOB, "worker")
    monkeypatch.setenv(contract.ENV_TASK_INDEX, "1")
    monkeypatch.setenv(contract.ENV_ADDRESS, "w1:1")
    monkeypatch.setattr("tfcluster_resolver.commands.show.visible_accelerators", dict)
    return tmp_path


def publish(folder: Path, view: contract.View) -> None:
    """Put a view in place at once, so that no reader sees half of it."""
    (folder / "new").write_text(contract.dump(view))
    (folder / "new").replace(folder / "cluster.json")


def become(monkeypatch, job: str, index: int, address: str) -> None:
    """Let this process be the pod of another task."""
    monkeypatch.setenv(contract.ENV_JOB, job)
    monkeypatch.setenv(contract.ENV_TASK_INDEX, str(index))
    monkeypatch.setenv(contract.ENV_ADDRESS, address)


@pytest.fixture
def listening() -> Iterator[Callable[[], socket.socket]]:
    """Opens ports that accept connections."""
    with ExitStack() as opened:

        def listen() -> socket.socket:
            one = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            one.settimeout(GUARD)
            return one

        yield listen


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def run(*words: str, **more) -> subprocess.CompletedProcess[str]:
    """Run a command as a program, to its end."""
    return subprocess.run(program(*words), capture_output=True, text=True, timeout=GUARD, check=False, **more)


def start(*words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen([*before, *program(*words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "tfcluster_resolver", *words]


def listed_codes(command: str) -> set[int]:
    """Read the exit codes that a command's help lists."""
    return {int(code) for code in re.findall(r"^  (\d+)(?= )", explain_codes(COMMANDS[command]), re.MULTILINE)}


def test_show_tells_people(in_pod, capsys):
    """``show`` lists epoch, own task, every task with its address and devices, and the filters."""
    assert main(["show"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "cluster      n/c, epoch 4, rpc layer grpc",
        f"view         {in_pod}/cluster.json",
        "this task    /job:worker/task:1 at w1:1",
        "tasks",
        "  /job:chief/task:0   c0:1",
        "  /job:worker/task:0  w0:1  nvidia.com/gpu: 2 requested, 2 healthy",
        "  /job:worker/task:1  w1:1  nvidia.com/gpu: 2 requested, 2 granted, 1 healthy  (this task)",
        "accelerators visible here: none",
        "device filters",
        "  /job:worker/task:0 to task:3 sees /job:chief, /job:ps",
    ]


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize(
    ("visible", "line"), [({"GPU": 2, "TPU": 1}, "2 GPU, 1 TPU"), ({}, "none"), (None, "not known")]
)
def test_show_tells_what_is_visible(monkeypatch, capsys, visible, line):
    """``show`` tells which accelerators this container shows, and where that cannot be told."""
    monkeypatch.setattr("tfcluster_resolver.commands.show.visible_accelerators", lambda: visible)

    main(["show"])

    assert f"accelerators visible here: {line}" in capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("in_pod")
def test_show_tells_programs(capsys):
    """``show --json`` tells the same as one JSON object."""
    assert main(["show", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told.pop("view").endswith("/cluster.json")
    assert told == {
        "cluster": {"name": "c", "namespace": "n", "uid": "u"},
        "epoch": 4,
        "rpcLayer": "grpc",
        "isolation": None,
        "task": {"job": "worker", "index": 1, "address": "w1:1"},
        "jobs": {"chief": ["c0:1"], "worker": ["w0:1", "w1:1"]},
        "deviceFilters": {"worker": {str(index): ["/job:chief", "/job:ps"] for index in range(4)}},
        "accelerators": {
            "worker": {
                "0": {GPU: {"requested": 2, "granted": None, "healthy": 2}},
                "1": {GPU: {"requested": 2, "granted": 2, "healthy": 1}},
            }
        },
        "visible": {},
    }


def test_show_outside_of_the_pods_names_no_task(in_pod, monkeypatch, capsys):
    """Where the process is no task, ``show`` says so and shows the view of the folder."""
    for name in (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS):
        monkeypatch.delenv(name)

    assert main(["show", "--directory", str(in_pod)]) == 0

    assert "this task    none (not in one of its pods)" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "change", "ending"),
    [
        *(([command, "--directory", "/nowhere"], {}, (66, "no view")) for command in COMMANDS if command != "doctor"),
        *(([command], {contract.ENV_TASK_INDEX: "x"}, (78, "not a task index")) for command in ("show", "wait")),
        (["serve"], {contract.ENV_ADDRESS: "w1"}, (78, "not an address of the form host:port")),
        (["wait", "--job", "ps"], {}, (68, "no job 'ps' in the view of n/c, which shows chief, worker")),
    ],
)
@pytest.mark.usefixtures("in_pod")
def test_failures_have_a_code_and_a_reason(monkeypatch, capsys, arguments, change, ending):
    """A command that cannot work says why in one line and ends with a code that its help lists."""
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    words = [*arguments, "--", "true"] if arguments[0] == "exec" else arguments

    code, said = ending
    assert main(words) == code
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1
    assert code in listed_codes(arguments[0])


@pytest.mark.parametrize("command", ["show", "matrix", "wait", "serve"])
def test_malformed_view_has_a_code(in_pod, capsys, command):
    """A malformed view is told from a missing one by its exit code."""
    (in_pod / "cluster.json").write_text("{")

    assert main([command]) == 65
    assert f"{in_pod}/cluster.json is not a view" in capsys.readouterr().err
    assert 65 in listed_codes(command)


@pytest.mark.usefixtures("in_pod")
def test_serve_without_tensorflow_is_said(monkeypatch, capsys):
    """Where TensorFlow is not installed, ``serve`` says so with a code of its own."""
    monkeypatch.setenv(contract.ENV_ADDRESS, "w1:0")

    assert main(["serve"]) == 69
    assert "the task server needs TensorFlow" in capsys.readouterr().err
    assert 69 in listed_codes("serve")


@pytest.mark.usefixtures("in_pod")
def test_serve_on_a_taken_port_is_said(monkeypatch, capsys, listening):
    """A port that another program has is told from a missing TensorFlow, before it is looked for."""
    monkeypatch.setenv(contract.ENV_ADDRESS, address_of(listening()))

    assert main(["serve"]) == 71
    assert "is taken" in capsys.readouterr().err
    assert 71 in listed_codes("serve")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["show", "--yaml"],
        ["show", "--js"],
        ["show", "--", "true"],
        ["exec"],
        ["exec", "--"],
        ["exec", "true"],
        ["wait", "--timeout", "soon"],
        ["wait", "--timeout", "-1"],
        ["doctor", "--timeout", "inf"],
    ],
)
def test_wrong_arguments_show_the_usage(capsys, arguments):
    """Wrong arguments end with exit code 2 and the usage."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert "python -m tfcluster_resolver" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_the_exit_codes(capsys, command):
    """Each command's ``--help`` lists its exit codes, wrong arguments among them."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    assert ended.value.code == 0
    assert explain_codes(COMMANDS[command]) in capsys.readouterr().out
    assert 2 in listed_codes(command)


def test_help_names_every_command(capsys):
    """``--help`` names the commands."""
    with pytest.raises(SystemExit):
        main(["--help"])

    assert re.findall(r"^    (\w+)  ", capsys.readouterr().out, re.MULTILINE) == list(COMMANDS)


@pytest.mark.usefixtures("in_pod")
def test_reader_that_stops_reading_is_no_error():
    """``show`` into a pipe that nobody reads ends as other programs do, without a traceback."""
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(program("show"), stdout=writing, stderr=subprocess.PIPE, check=False, timeout=GUARD)
    os.close(writing)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


# exec

TELL = "import json, os; print(json.dumps(dict(os.environ)))"


def environment_of_program(*, directory: Path | None = None) -> dict[str, str]:
    """Give the environment of a program that ``exec`` runs."""
    where = ("--directory", str(directory)) if directory is not None else ()
    done = run("exec", *where, "--", sys.executable, "-c", TELL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("in_pod")
def test_exec_gives_tf_config():
    """A program finds the cluster as dense lists, its task and the rpc layer in TF_CONFIG."""
    assert json.loads(environment_of_program()["TF_CONFIG"]) == {
        "cluster": {"chief": ["c0:1"], "worker": ["w0:1", "w1:1"]},
        "task": {"type": "worker", "index": 1},
        "rpc_layer": "grpc",
        "environment": "cloud",
    }


def test_exec_gives_index_maps_of_a_sparse_view(in_pod):
    """A job of which the task sees some is a map from index to address, the task itself among them."""
    publish(in_pod, replace(VIEW, jobs={"chief": ("c0:1",), "worker": {3: "w3:1"}}))

    assert json.loads(environment_of_program()["TF_CONFIG"])["cluster"] == {
        "chief": ["c0:1"],
        "worker": {"1": "w1:1", "3": "w3:1"},
    }


@pytest.mark.usefixtures("in_pod")
def test_exec_shows_an_evaluator_itself(monkeypatch):
    """An evaluator finds itself in its cluster, where MultiWorkerMirroredStrategy looks it up."""
    become(monkeypatch, "evaluator", 0, "e0:1")

    told = json.loads(environment_of_program()["TF_CONFIG"])

    assert told["task"] == {"type": "evaluator", "index": 0}
    assert told["cluster"].pop("evaluator") == ["e0:1"]
    assert set(told["cluster"]) == {"chief", "worker"}


def test_exec_keeps_the_resolvers_environment(in_pod, monkeypatch):
    """The program's own resolver reads the same view, and the rest of the environment stays, but for TF_CONFIG."""
    monkeypatch.setenv("TF_CONFIG", "an old one")
    monkeypatch.setenv("MINE", "kept")
    monkeypatch.delenv(contract.ENV_DIRECTORY)
    monkeypatch.delenv("TFCLUSTER_CACHE", raising=False)  # a developer's own

    told = environment_of_program(directory=in_pod)

    assert {name: told[name] for name in told if name.startswith("TFCLUSTER_")} == {
        contract.ENV_DIRECTORY: str(in_pod),
        contract.ENV_JOB: "worker",
        contract.ENV_TASK_INDEX: "1",
        contract.ENV_ADDRESS: "w1:1",
    }
    assert told["MINE"] == "kept"
    assert told["TF_CONFIG"] != "an old one"


@pytest.mark.usefixtures("in_pod")
def test_exec_becomes_the_program():
    """The program has this process's id, arguments as they are given, and its exit code counts."""
    asking = start(
        "exec", "--", sys.executable, "-c", "import os, sys; print(os.getpid(), sys.argv[1:]); exit(9)", "--", "-x"
    )
    said, _ = asking.communicate(timeout=GUARD)

    assert said == f"{asking.pid} ['--', '-x']\n"
    assert asking.returncode == 9


@pytest.mark.usefixtures("in_pod")
def test_exec_hands_on_no_ignored_signal():
    """A program that writes into a closed pipe is ended by SIGPIPE, which Python itself ignores."""
    done = run("exec", "--", "sh", "-c", "yes | head -1; kill -PIPE $$; echo still here")

    assert (done.returncode, done.stdout) == (-signal.SIGPIPE, "y\n")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: folder / "absent", 127),
        (lambda _: "a-program-that-nobody-has", 127),
        (lambda folder: folder, 126),
        (lambda folder: folder / "cluster.json", 126),
        (lambda folder: folder / "cluster.json" / "within", 126),
    ],
    ids=["no such file", "not on the path", "a folder", "not executable", "in no folder"],
)
def test_exec_that_cannot_run_ends_as_shells_do(in_pod, make, code):
    """A program that is not there gives 127, one that cannot be run 126, with one line that names it."""
    named = str(make(in_pod))

    done = run("exec", "--", named)

    assert done.returncode == code
    assert re.fullmatch(rf"tfcluster_resolver: cannot run {re.escape(named)}: .+\n", done.stderr)
    assert code in listed_codes("exec")


@pytest.mark.usefixtures("in_pod")
def test_exec_outside_of_the_pods_is_refused(monkeypatch, capsys):
    """Where the process is no task, TF_CONFIG would name none: that is an error."""
    for name in (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS):
        monkeypatch.delenv(name)

    assert main(["exec", "--", "true"]) == 78
    assert "TF_CONFIG would name no task" in capsys.readouterr().err


# the Python functions beside the commands


def test_tf_config_is_what_exec_sets(in_pod):
    """``tf_config()`` gives what ``exec`` gives a program, without TensorFlow."""
    assert tf_config() == environment_of_program(directory=in_pod)["TF_CONFIG"]


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (("worker", 0), {"type": "worker", "index": 0}),
        (("evaluator", 0), {"type": "evaluator", "index": 0}),
    ],
)
def test_tf_config_speaks_for_the_resolvers_task(task, told):
    """With a resolver, cluster, task and rpc layer are the resolver's: no file and no environment is looked at."""
    resolver = TFClusterResolver.from_spec({"worker": ["a:1", "b:2"]}, *task, rpc_layer="grpc+verbs")

    assert json.loads(tf_config(resolver)) == {
        "cluster": {"worker": ["a:1", "b:2"]},
        "task": told,
        "environment": "cloud",
        "rpc_layer": "grpc+verbs",
    }


@pytest.mark.parametrize("call", [tf_config, serve])
def test_what_is_no_resolver_is_refused(call):
    """What is given in place of a resolver is named by its type, in an error of ours."""
    with pytest.raises(ArgumentTypeError, match="resolver must be a TFClusterResolver, not int"):
        call(3)


def test_tf_config_of_the_pods_resolver_has_its_hidden_task(in_pod):
    """The own task is in TF_CONFIG although the view hides it, through a resolver too."""
    publish(in_pod, replace(VIEW, jobs={"chief": ("c0:1",), "worker": {0: "w0:1"}}))

    assert json.loads(tf_config(TFClusterResolver())) == json.loads(tf_config())
    assert json.loads(tf_config())["cluster"]["worker"] == ["w0:1", "w1:1"]


@pytest.mark.parametrize("function", [serve, tf_config])
def test_functions_need_a_task(function):
    """Without a task there is nothing to serve and nothing to name; with one that is not there, likewise."""
    with pytest.raises(errors.TaskIdentityError, match="no resolver names a task"):
        function(TFClusterResolver.from_spec({"worker": ["a:1"]}))
    with pytest.raises(errors.NoSuchTaskError):
        function(TFClusterResolver.from_spec({"worker": ["a:1"]}, "worker", 1))


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("my-worker", "a name is a letter, then letters, digits and _"),
        ("1worker", "a name is a letter"),
        ("wörker", "a name is a letter"),
        ("worker\n", "a name is a letter"),
    ],
)
def test_task_that_tensorflow_does_not_survive_is_refused(monkeypatch, capsys, job, said):
    """A name for which TensorFlow aborts the process is refused before TensorFlow is loaded, by both."""
    become(monkeypatch, job, 0, "w1:0")
    monkeypatch.setattr(
        "tfcluster_resolver._tensorflow.tensorflow_api.load", lambda _: pytest.fail("TensorFlow was loaded")
    )

    assert main(["serve"]) == 71
    assert said in capsys.readouterr().err
    with pytest.raises(errors.ServeError, match=said):
        serve()


def test_refused_serve_leaves_signals_alone(listening):
    """A program that goes on after ``serve()`` failed has the signal handlers that it had."""

    def handlers():
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    before = handlers()

    with pytest.raises(errors.PortTakenError):
        serve(TFClusterResolver.from_spec({"worker": [address_of(listening())]}, "worker", 0))
    with pytest.raises(errors.TensorFlowNotFoundError):
        serve(TFClusterResolver.from_spec({"worker": [f"127.0.0.1:{free_ports(1)[0]}"]}, "worker", 0))
    assert handlers() == before


# wait


def waiting_view(**jobs) -> contract.View:
    return replace(VIEW, jobs={job: tuple(addresses) for job, addresses in jobs.items()})


def test_wait_ends_when_the_others_listen(in_pod, listening, capsys):
    """``wait`` ends with 0 when every task but the own one, which nobody serves, accepts connections."""
    publish(in_pod, waiting_view(chief=[address_of(listening())], worker=[address_of(listening()), refusing_address()]))

    assert main(["wait", "--timeout", "0"]) == 0
    assert capsys.readouterr().out == "2 other tasks listen\n"


def test_wait_takes_the_named_jobs(in_pod, listening, capsys):
    """With ``--job`` only tasks of these jobs are waited for."""
    publish(
        in_pod,
        waiting_view(chief=[address_of(listening())], ps=[address_of(listening())], worker=[refusing_address()] * 2),
    )

    assert main(["wait", "--job", "chief", "--job", "ps", "--timeout", "0"]) == 0
    assert capsys.readouterr().out == "2 other tasks listen\n"
    assert main(["wait", "--job", "chief", "--job", "worker", "--timeout", "0"]) == 75


def test_wait_lists_who_is_missing(in_pod, listening, capsys):
    """After the time-out each missing task is listed with its cause, and the code says so."""
    refusing = refusing_address()
    publish(in_pod, waiting_view(chief=["no-such-host.invalid:1"], ps=[refusing, address_of(listening())]))

    assert main(["wait", "--timeout", "0"]) == 75

    first, *missing = capsys.readouterr().err.splitlines()
    assert "2 of 3 other tasks of n/c (epoch 4) did not answer within 0 s" in first
    assert [line.split(" (")[0] for line in missing] == [
        "  /job:chief/task:0 at no-such-host.invalid:1: name does not resolve",
        f"  /job:ps/task:0 at {refusing}: connection refused",
    ]
    assert 75 in listed_codes("wait")


def test_wait_follows_a_resize(in_pod, listening):
    """A task that is scaled away meanwhile is not waited for any longer, and one that is added is."""
    first, added = listening(), listening()
    publish(in_pod, waiting_view(chief=[address_of(first)], ps=[refusing_address()]))
    waiting = start("wait", "--timeout", str(GUARD))
    first.accept()

    publish(in_pod, waiting_view(chief=[address_of(first), address_of(added)]))
    said, complaint = waiting.communicate(timeout=GUARD)

    assert (waiting.returncode, said, complaint) == (0, "2 other tasks listen\n", "")
    added.accept()


def test_wait_looks_at_the_view_once_more(in_pod, monkeypatch, listening, capsys):
    """A task that is added while the last one answers is waited for as well."""
    answering, added = address_of(listening()), refusing_address()
    publish(in_pod, waiting_view(chief=[answering]))

    real = Probes.look_once

    def look_and_grow(probes):
        real(probes)
        publish(in_pod, waiting_view(chief=[answering, added]))

    monkeypatch.setattr(Probes, "look_once", look_and_grow)

    assert main(["wait", "--timeout", "0"]) == 75
    assert f"/job:chief/task:1 at {added}" in capsys.readouterr().err


@pytest.mark.usefixtures("in_pod")
def test_wait_ends_although_a_name_is_still_looked_up():
    """A look-up that never ends keeps ``wait`` from nothing: it ends at its time-out, with its code."""
    stuck = (
        "import socket, sys, threading; socket.getaddrinfo = lambda *_, **__: threading.Event().wait();"
        "from tfcluster_resolver import __main__ as main; main._program()"
    )

    done = subprocess.run(
        [sys.executable, "-c", stuck, "wait", "--timeout", "0"],
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )

    assert done.returncode == 75, done.stderr
    assert "/job:chief/task:0 at c0:1: name does not resolve" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("before", [(), ("unshare", "--fork", "--pid", "--kill-child")], ids=["a process", "process 1"])
def test_signal_ends_a_wait(in_pod, listening, number, code, before):
    """A signal ends ``wait`` with 128 plus its number and no traceback, also as process 1 of a container."""
    if before and subprocess.run([*before, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("making a process namespace needs root")
    first = listening()
    publish(in_pod, waiting_view(chief=[address_of(first)], ps=[refusing_address()]))
    waiting = start("wait", "--timeout", str(GUARD), before=before)
    first.accept()

    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text().split()
    os.kill(int(children[0]) if before else waiting.pid, number)
    said, complaint = waiting.communicate(timeout=GUARD)

    assert (waiting.returncode, said, complaint) == (code, "", "")
