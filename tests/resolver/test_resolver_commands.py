"""The commands inside a pod: their output and their exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from resolver.resolver_world import (
    GPU,
    IDENTITY,
    address_of,
    be_no_task,
    be_task,
    publish,
    python,
    refusing_address,
    view_of,
)
from support.waiting import GUARD

from local_kubernetes.ports import free_ports
from tfcluster_resolver import Task, TFClusterResolver, contract, errors, serve, tf_config
from tfcluster_resolver.__main__ import COMMANDS, main
from tfcluster_resolver.commands import serve as serving
from tfcluster_resolver.commands.command import explain_codes

VIEW = view_of(
    {"chief": ("c0:1",), "worker": ("w0:1", "w1:1")},
    epoch=4,
    device_filters={"worker": (contract.FilterRange(0, 4, ("/job:chief", "/job:ps")),)},
    accelerators={"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 1}})},
)


@pytest.fixture
def in_pod(tmp_path, monkeypatch):
    """This process is the pod of worker 1, on a machine without accelerators; its folder also has a broken view."""
    publish(tmp_path, VIEW)
    (tmp_path / "broken").mkdir()
    publish(tmp_path / "broken", "{")
    monkeypatch.chdir(tmp_path)
    be_task(monkeypatch, "worker", 1, "w1:1", tmp_path)
    monkeypatch.setattr("tfcluster_resolver.commands.show.visible_accelerators", dict)
    return tmp_path


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "tfcluster_resolver", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "tfcluster_resolver", *words)


def listed_codes(command: str) -> set[int]:
    return {int(code) for code in re.findall(r"^  (\d+)(?= )", explain_codes(COMMANDS[command]), re.MULTILINE)}


def test_success_is_listed_where_it_is_the_command_s_own():
    assert {name for name in COMMANDS if 0 not in listed_codes(name)} == {"exec"}


def test_show_prints_text(in_pod, capsys):
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
def test_show_prints_json(capsys):
    assert main(["show", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("view").endswith("/cluster.json")
    others, own = {"requested": 2, "granted": None, "healthy": 2}, {"requested": 2, "granted": 2, "healthy": 1}
    assert shown == {
        "cluster": {"name": "c", "namespace": "n", "uid": "u"},
        "epoch": 4,
        "rpcLayer": "grpc",
        "isolation": None,
        "task": {"job": "worker", "index": 1, "address": "w1:1"},
        "jobs": {"chief": ["c0:1"], "worker": ["w0:1", "w1:1"]},
        "deviceFilters": {"worker": {str(index): ["/job:chief", "/job:ps"] for index in range(4)}},
        "accelerators": {"worker": {"0": {GPU: others}, "1": {GPU: own}}},
        "visible": {},
    }


def test_show_names_what_is_not_known(in_pod, monkeypatch, capsys):
    be_no_task(monkeypatch)
    for visible, line in (({"GPU": 2, "TPU": 1}, "2 GPU, 1 TPU"), (None, "not known")):
        monkeypatch.setattr("tfcluster_resolver.commands.show.visible_accelerators", lambda found=visible: found)
        assert main(["show", "--directory", str(in_pod)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"accelerators visible here: {line}" in lines
        assert "this task    none (not in one of its pods)" in lines


NO_TASK = dict.fromkeys(IDENTITY)
READING = ("show --directory", "wait --directory", "serve --directory")


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize(
    ("words", "environment", "ending"),
    [
        *((f"{words} /nowhere", {}, (66, "no view")) for words in READING),
        *((f"{words} broken", {}, (65, "broken/cluster.json is not a view")) for words in READING),
        ("exec --directory /nowhere -- true", {}, (66, "no view")),
        ("exec -- true", NO_TASK, (78, "TF_CONFIG would name no task")),
        ("show", {contract.ENV_TASK_INDEX: "x"}, (78, "not a task index")),
        ("wait", {contract.ENV_TASK_INDEX: "x"}, (78, "not a task index")),
        ("wait --job ps", {}, (68, "no job 'ps' in the view of n/c, which shows chief, worker")),
        ("serve", {contract.ENV_ADDRESS: "w1"}, (78, "not an address of the form host:port")),
        ("serve", {contract.ENV_ADDRESS: "w1:0"}, (69, "the task server needs TensorFlow")),
    ],
)
def test_failures_have_a_code_and_a_reason(monkeypatch, capsys, words, environment, ending):
    for name, value in environment.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)

    code, reason = ending
    assert main(words.split()) == code
    complaint = capsys.readouterr().err
    assert reason in complaint
    assert complaint.count("\n") == 1
    assert code in listed_codes(words.split()[0])


WRONG = ["", "dance", "show --yaml", "show --js", "show -- true", "exec", "exec --", "exec true"]


@pytest.mark.parametrize("words", [*WRONG, "wait --timeout soon", "wait --timeout -1", "doctor --timeout inf"])
def test_wrong_arguments_show_the_usage(capsys, words):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "python -m tfcluster_resolver" in capsys.readouterr().err


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_names_every_command_or_the_exit_codes_of_one(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main(["--help"] if command is None else [command, "--help"])
    assert ended.value.code == 0
    page = capsys.readouterr().out
    if command is None:
        assert re.findall(r"^    (\w+)  ", page, re.MULTILINE) == list(COMMANDS)
    else:
        assert explain_codes(COMMANDS[command]) in page
        assert 2 in listed_codes(command)


@pytest.mark.usefixtures("in_pod")
def test_show_into_a_closed_pipe_ends_without_a_traceback():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(program("show"), stdout=writing, stderr=subprocess.PIPE, check=False, timeout=GUARD)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


# exec, and the function tf_config


def test_exec_sets_tf_config_and_keeps_the_environment(in_pod, monkeypatch):
    """The program has the result of ``tf_config()``, its own resolver reads the same view, and other variables stay."""
    monkeypatch.setenv("TF_CONFIG", "an old one")
    monkeypatch.setenv("MINE", "kept")
    monkeypatch.delenv("TFCLUSTER_CACHE", raising=False)  # a developer's own
    expected = tf_config()
    monkeypatch.delenv(contract.ENV_DIRECTORY)
    dump = "import json, os; print(json.dumps(dict(os.environ)))"

    done = run("exec", "--directory", str(in_pod), "--", sys.executable, "-c", dump)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: found[name] for name in found if name.startswith("TFCLUSTER_")} == {
        contract.ENV_DIRECTORY: str(in_pod),
        **dict(zip(IDENTITY, ("worker", "1", "w1:1"), strict=True)),
    }
    assert (found["MINE"], found["TF_CONFIG"]) == ("kept", expected)
    assert json.loads(expected) == {
        "cluster": {"chief": ["c0:1"], "worker": ["w0:1", "w1:1"]},
        "task": {"type": "worker", "index": 1},
        "rpc_layer": "grpc",
        "environment": "cloud",
    }


@pytest.mark.parametrize("job", ["worker", "evaluator"])
def test_tf_config_speaks_for_the_resolvers_task(job):
    resolver = TFClusterResolver.from_spec({"worker": ["a:1", "b:2"]}, job, 0, rpc_layer="grpc+verbs")
    assert json.loads(tf_config(resolver)) == {
        "cluster": {"worker": ["a:1", "b:2"]},
        "task": {"type": job, "index": 0},
        "environment": "cloud",
        "rpc_layer": "grpc+verbs",
    }


@pytest.mark.usefixtures("in_pod")
def test_exec_becomes_the_program():
    """It has this process's id, its arguments, and no ignored signal: Python ignores SIGPIPE, other programs end."""
    script = 'echo $$ "$@"; yes | head -1; kill -PIPE $$; echo still here'
    asking = subprocess.Popen(program("exec", "--", "sh", "-c", script, "sh", "--", "-x"), stdout=subprocess.PIPE)
    assert asking.communicate(timeout=GUARD)[0].decode() == f"{asking.pid} -- -x\ny\n"
    assert asking.returncode == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("{0}/absent", 127),
        ("absent", 127),
        ("", 127),
        ("{0}", 126),
        ("{0}/cluster.json", 126),
        ("{0}/cluster.json/within", 126),
    ],
)
def test_exec_that_cannot_run_ends_as_shells_do(in_pod, path, code):
    named = path.format(in_pod)
    done = run("exec", "--", named)
    assert done.returncode == code
    assert re.fullmatch(rf"tfcluster_resolver: cannot run {re.escape(named)}: .+\n", done.stderr)
    assert code in listed_codes("exec")


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize(
    ("where", "code", "told"),
    [
        ("> /dev/full", os.EX_IOERR, "tfcluster_resolver: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written(where, code, told):
    """A full disk is one line and a separate code; a closed output is not an error."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" "$@" {where}', *program("show")], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, told)


@pytest.mark.parametrize("function", [serve, tf_config])
def test_functions_need_a_resolver_with_a_task(function):
    with pytest.raises(errors.ArgumentTypeError, match="resolver must be a TFClusterResolver, not int"):
        function(3)
    with pytest.raises(errors.TaskIdentityError, match="no resolver names a task"):
        function(TFClusterResolver.from_spec({"worker": ["a:1"]}))
    with pytest.raises(errors.NoSuchTaskError):
        function(TFClusterResolver.from_spec({"worker": ["a:1"]}, "worker", 1))


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize("job", ["my-worker", "1worker", "wörker", "worker\n"])
def test_name_that_aborts_tensorflow_is_rejected(monkeypatch, capsys, job):
    """Both reject a name that would abort TensorFlow, before they load it."""
    reason = "a name is a letter, then letters, digits and _"
    be_task(monkeypatch, job, 0, "w1:0")
    monkeypatch.setattr(
        "tfcluster_resolver._tensorflow.tensorflow_api.load", lambda _: pytest.fail("TensorFlow was loaded")
    )

    assert main(["serve"]) == 71
    assert reason in capsys.readouterr().err
    with pytest.raises(errors.ServeError, match=reason):
        serve()


@pytest.mark.usefixtures("in_pod")
def test_serve_on_a_port_in_use_is_rejected_and_keeps_signal_handlers(monkeypatch, capsys, listen):
    """The port is checked before TensorFlow is loaded; a program that continues has its signal handlers."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.setenv(contract.ENV_ADDRESS, listen())

    assert main(["serve"]) == 71
    assert "is taken" in capsys.readouterr().err
    assert 71 in listed_codes("serve")
    with pytest.raises(errors.PortTakenError):
        serve(TFClusterResolver.from_spec({"worker": [listen()]}, "worker", 0))
    with pytest.raises(errors.TensorFlowNotFoundError):
        serve(TFClusterResolver.from_spec({"worker": [f"127.0.0.1:{free_ports(1)[0]}"]}, "worker", 0))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize(
    ("leaves", "age", "released", "stays"),
    [(True, 0, True, True), (True, 1e6, True, True), (False, 0, False, True), (False, 1e6, False, False)],
)
def test_server_is_released_only_while_it_leaves(tmp_path, leaves, age, released, stays):
    """The message can come first: it counts once the view says that the task leaves; an old one is deleted."""
    word, own = tmp_path / "word", Task("worker", 1, "w1:1")
    publish(tmp_path, replace(VIEW, leaving={"worker": ((1, 2),)} if leaves else {}))
    live = TFClusterResolver.from_file(tmp_path / "cluster.json")
    assert not serving._is_released(str(word), live, own)
    word.touch()
    os.utime(word, (time.time() - age,) * 2)
    assert (serving._is_released(str(word), live, own), word.exists()) == (released, stays)


# wait


def test_wait_is_for_all_others_or_the_named_jobs(in_pod, listen, capsys):
    """It exits with 0 when they listen, and otherwise lists missing tasks with reasons; the own task is skipped."""
    refusing = refusing_address()
    jobs = {"chief": (listen(),), "ps": (listen(),), "worker": (refusing, refusing)}
    publish(in_pod, replace(VIEW, jobs=jobs))

    assert main(["wait", "--job", "chief", "--job", "ps", "--timeout", "0"]) == 0
    assert capsys.readouterr().out == "2 other tasks listen\n"
    assert main(["wait", "--timeout", "0"]) == 75
    first, *missing = capsys.readouterr().err.splitlines()
    assert "1 of 3 other tasks of n/c (epoch 4) did not answer within 0 s" in first
    assert [line.split(" (")[0] for line in missing] == [f"  /job:worker/task:0 at {refusing}: connection refused"]
    assert 75 in listed_codes("wait")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("before", [(), ("unshare", "--fork", "--pid", "--kill-child")], ids=["a process", "process 1"])
def test_signal_ends_a_wait(in_pod, number, code, before):
    if before and subprocess.run([*before, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("making a process namespace needs root")
    with socket.create_server(("127.0.0.1", 0)) as first:
        first.settimeout(GUARD)
        publish(in_pod, replace(VIEW, jobs={"chief": (address_of(first),), "ps": (refusing_address(),)}))
        words = [*before, *program("wait", "--timeout", str(GUARD))]
        waiting = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first.accept()

    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text().split()
    os.kill(int(children[0]) if before else waiting.pid, number)

    assert (*waiting.communicate(timeout=GUARD), waiting.returncode) == ("", "", code)
