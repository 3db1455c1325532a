"""What ``doctor`` finds, check by check, in real folders, on real ports and with real names."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import GUARD
from unit.refusing_address import refusing_address

import tfcluster_resolver
from local_kubernetes.ports import free_ports
from tfcluster_resolver import contract
from tfcluster_resolver.__main__ import main
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.commands import checks, doctor, network_checks
from tfcluster_resolver.commands.checks import Check, Verdict, free_memory
from tfcluster_resolver.waiting.own_port import PortState, port_state, speaks_grpc
from tfcluster_resolver.waiting.reachability import host_and_port

SOURCES = Path(tfcluster_resolver.__file__).parent
GPU = "nvidia.com/gpu"
#: What a gRPC server says first: an empty frame of HTTP/2's settings.
SETTINGS_FRAME = b"\0\0\0\4\0\0\0\0\0"
VIEW = contract.View(
    name="c", namespace="n", uid="u", epoch=4, rpc_layer="grpc", jobs={"worker": ("127.0.0.1:1", "127.0.0.1:2")}
)
#: An address for documentation: no machine has it.
ELSEWHERE = "192.0.2.1"


def membership(view: contract.View = VIEW, own: Task | None = None) -> Membership:
    """Make the cluster as worker 1 sees it, unless told otherwise."""
    return Membership(view=view, own=own or Task("worker", 1, "127.0.0.1:2"))


NOBODY = Membership(view=VIEW, own=None)


@pytest.fixture
def listening() -> Iterator[Callable[..., int]]:
    """Opens ports; what connects is answered with some bytes."""
    with ExitStack() as opened:

        def listen(answer: bytes = b"") -> int:
            listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    with connection, suppress(OSError):  # whoever asked may be gone before it is answered
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1024):
                            pass

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            opened.callback(thread.join)
            opened.callback(listener.shutdown, socket.SHUT_RDWR)
            return listener.getsockname()[1]

        yield listen


@pytest.fixture
def mounted(tmp_path) -> Callable[[contract.View], Path]:
    """Mounts a view as a kubelet does, and gives the folder."""

    def mount(view: contract.View) -> Path:
        (tmp_path / "..2026").mkdir()
        (tmp_path / "..2026" / "cluster.json").write_text(contract.dump(view))
        (tmp_path / "..data").symlink_to("..2026")
        (tmp_path / "cluster.json").symlink_to("..data/cluster.json")
        return tmp_path

    return mount


def verdict(check: Check) -> Verdict:
    """Give a check's verdict, after a look at what holds for all: what is wrong has a remedy, what is well has none."""
    assert bool(check.remedy) == (check.verdict in {Verdict.WARNING, Verdict.FAILED})
    assert check.message
    assert "\n" not in check.message + check.remedy
    return check.verdict


# package


def install(folder: Path, version: str) -> str:
    (folder / "tfcluster_resolver").mkdir(parents=True)
    (folder / "tfcluster_resolver" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    return str(folder)


def test_lone_copy_of_the_package_is_well():
    """The copy that runs is named with its version and folder."""
    check = checks.package([str(SOURCES.parent)])

    assert verdict(check) is Verdict.OK
    assert check.message == f"tfcluster_resolver {tfcluster_resolver.__version__} in {SOURCES}"


def test_older_copy_that_is_not_taken_is_told(tmp_path):
    """A second, older copy is no fault; it is named, because somebody may think that it runs."""
    check = checks.package([str(SOURCES.parent), install(tmp_path / "old", "0.0.1")])

    assert verdict(check) is Verdict.OK
    assert check.message.endswith(f"; not taken: 0.0.1 in {tmp_path}/old/tfcluster_resolver")


def test_newer_copy_that_is_hidden_is_a_warning(tmp_path):
    """A newer copy that the running one hides is a warning that names both."""
    check = checks.package([str(SOURCES.parent), install(tmp_path / "new", "99.0")])

    assert verdict(check) is Verdict.WARNING
    assert check.message.endswith(f"in {SOURCES} hides the newer 99.0 in {tmp_path}/new/tfcluster_resolver")


# task and view


def test_process_that_is_no_task_is_a_warning():
    """Outside of the cluster's pods the checks of a task are not asked for by mistake."""
    assert verdict(checks.task(None)) is Verdict.WARNING
    assert verdict(checks.task(Task("worker", 1, "w1:1"))) is Verdict.OK


def test_mounted_view_is_well(mounted):
    """A mounted view is told with its epoch, file and age."""
    folder = mounted(VIEW)
    file = folder / "..2026" / "cluster.json"

    check = checks.view(membership(), file, str(folder))

    assert verdict(check) is Verdict.OK
    assert check.message.startswith(f"n/c, epoch 4, in {file}, written ")


def test_view_that_never_changes_is_a_warning(tmp_path):
    """A file without the kubelet's link beside it, as subPath mounts it, never changes."""
    (tmp_path / "cluster.json").write_text(contract.dump(VIEW))

    check = checks.view(membership(), tmp_path / "cluster.json", str(tmp_path))

    assert verdict(check) is Verdict.WARNING
    assert "subPath" in check.remedy


@pytest.mark.parametrize("tasks", [("127.0.0.1:1", "127.0.0.1:3"), {1: "127.0.0.1:3"}])
def test_view_of_another_cluster_fails(mounted, tasks):
    """A view that has this task at another address than the environment is not this pod's."""
    view = replace(VIEW, jobs={"worker": tasks})
    folder = mounted(view)

    check = checks.view(membership(view), folder / "cluster.json", str(folder))

    assert verdict(check) is Verdict.FAILED
    assert "127.0.0.1:3" in check.message
    assert "127.0.0.1:2" in check.message


def test_task_that_was_scaled_away_is_a_warning(mounted):
    """A task behind the last of its job is about to go."""
    view = replace(VIEW, jobs={"worker": ("127.0.0.1:1",)})
    folder = mounted(view)

    check = checks.view(membership(view), folder / "cluster.json", str(folder))

    assert verdict(check) is Verdict.WARNING
    assert "it ends at /job:worker/task:0" in check.message


@pytest.mark.parametrize(
    ("jobs", "own"),
    [
        ({"ps": ("127.0.0.1:9",)}, Task("worker", 1, "127.0.0.1:2")),
        ({"worker": {3: "127.0.0.1:9"}}, Task("worker", 1, "127.0.0.1:2")),
        ({"worker": ("127.0.0.1:9",)}, Task("evaluator", 0, "127.0.0.1:2")),
    ],
    ids=["its job is hidden", "it is hidden", "an evaluator"],
)
def test_view_that_does_not_show_the_task_itself_is_well(mounted, jobs, own):
    """Device filters may hide a task from its own view, and an evaluator is in none."""
    view = replace(VIEW, jobs=jobs)
    folder = mounted(view)

    assert verdict(checks.view(membership(view, own), folder / "cluster.json", str(folder))) is Verdict.OK


# name


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, "it says what the view says"),
        ({"environment": "cloud"}, "it says what the view says"),
        ({"cluster": {"worker": {"1": "127.0.0.1:2", "0": "127.0.0.1:1"}}}, "it says what the view says"),
        ({"cluster": {"worker": ["127.0.0.1:1"]}}, "it lacks /job:worker/task:1 at 127.0.0.1:2"),
        ({"cluster": {}}, "it lacks /job:worker/task:0 at 127.0.0.1:1, /job:worker/task:1 at 127.0.0.1:2"),
        (
            {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"], "ps": [f"p{n}:1" for n in range(5)]}},
            "it has /job:ps/task:0 at p0:1, /job:ps/task:1 at p1:1, /job:ps/task:2 at p2:1 and 2 more, which the view",
        ),
        (
            {"task": {"type": "ps", "index": 0}},
            'it is for {"type": "ps", "index": 0}, and this is /job:worker/task:1',
        ),
        ({"task": None, "cluster": 5}, "it is for null, and this is /job:worker/task:1; it lacks"),
    ],
)
def test_tf_config_is_compared_with_the_view(change, found):
    """What the operator or anybody else set, whichever way it is spelled; what differs is a warning with what to do."""
    config = {
        "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
        "task": {"type": "worker", "index": 1},
        "rpc_layer": "grpc",
    }
    check = checks.tf_config(membership(), {"TF_CONFIG": json.dumps({**config, **change})})

    assert check is not None
    assert found in check.message
    assert (check.verdict, bool(check.remedy)) == (
        (Verdict.OK, False) if found.startswith("it says") else (Verdict.WARNING, True)
    )


def test_tf_config_that_is_not_json_is_a_warning():
    """Whoever wrote it: a program would fail over it."""
    for text in ("", "{", "[]"):
        check = checks.tf_config(membership(), {"TF_CONFIG": text})
        assert check is not None
        assert check.verdict is Verdict.WARNING


def test_tf_config_is_not_looked_at_where_there_is_none():
    """Nor where the process is no task."""
    assert checks.tf_config(membership(), {}) is None
    assert checks.tf_config(NOBODY, {"TF_CONFIG": "{}"}) is None


@pytest.mark.usefixtures("in_pod")
def test_doctor_tells_of_a_stale_tf_config(monkeypatch, capsys):
    """One line more, which fails nothing."""
    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "worker", "index": 1}}')

    assert main(["doctor"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning  TF_CONFIG ")]


def named(host: str) -> Membership:
    return membership(own=Task("worker", 1, f"{host}:2"))


def test_own_name_that_leads_here_is_well():
    """A name that resolves to an address of this machine is this pod's."""
    check = network_checks.own_name(named("localhost"), GUARD)

    assert verdict(check) is Verdict.OK
    assert "127.0.0.1" in check.message


def test_own_name_that_does_not_resolve_fails():
    """Without a name nobody finds this task; the Service is what to look for."""
    check = network_checks.own_name(named("no-such-host.invalid"), GUARD)

    assert verdict(check) is Verdict.FAILED
    assert check.message == "no-such-host.invalid does not resolve"
    assert "Service c" in check.remedy


def test_own_name_that_leads_elsewhere_fails():
    """A name of another pod, or of an earlier one, fails with its address."""
    check = network_checks.own_name(named(ELSEWHERE), GUARD)

    assert verdict(check) is Verdict.FAILED
    assert check.message == f"{ELSEWHERE} leads to {ELSEWHERE}, which is not this pod"


def test_own_name_that_nobody_answers_fails(monkeypatch):
    """A look-up that does not end is given up."""
    monkeypatch.setattr(network_checks, "_LOOK_UP", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: threading.Event().wait())

    check = network_checks.own_name(named("slow"), 0.0)

    assert verdict(check) is Verdict.FAILED
    assert check.message == "looking up slow takes over 0 s"


# port


def on_port(port: int) -> Membership:
    return membership(own=Task("worker", 1, f"127.0.0.1:{port}"))


def test_free_port_is_well():
    """A port that nobody has is free for the server to come."""
    check = network_checks.own_port(on_port(free_ports(1)[0]))

    assert verdict(check) is Verdict.OK
    assert "is free" in check.message


def test_port_of_a_grpc_server_is_ours(listening):
    """What greets as gRPC does is taken for this task's server."""
    check = network_checks.own_port(on_port(listening(SETTINGS_FRAME)))

    assert verdict(check) is Verdict.OK
    assert "is answered by a gRPC server" in check.message


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\4"])
def test_port_of_another_program_fails(listening, answer):
    """What listens and does not greet as gRPC does is another program, whatever it says or does not."""
    check = network_checks.own_port(on_port(listening(answer)))

    assert verdict(check) is Verdict.FAILED
    assert "is taken by a program" in check.message


def test_greeting_of_a_dead_port_is_none():
    """Where nobody listens, nobody speaks gRPC."""
    assert not speaks_grpc(*host_and_port(refusing_address()))


def test_port_that_the_user_may_not_have_fails():
    """A port below those for everybody is told from a taken one."""
    if os.geteuid() != 0 or int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1:
        pytest.skip("needs root, to become another user, and ports that only root may have")

    os.seteuid(65534)
    try:
        check = network_checks.own_port(on_port(1))
    finally:
        os.seteuid(0)

    assert verdict(check) is Verdict.FAILED
    assert check.message == "this user may not listen on port 1"


def test_port_states(listening):
    """A port is free or taken."""
    assert (port_state(free_ports(1)[0]), port_state(listening())) == (PortState.FREE, PortState.TAKEN)


# peers


def test_peers_that_listen_are_well(listening):
    """All others that listen are one line; the own task is not asked."""
    view = replace(VIEW, jobs={"ps": (f"127.0.0.1:{listening()}",), "worker": (f"127.0.0.1:{listening()}", "w1:1")})

    (check,) = network_checks.peers(membership(view), 0.0)

    assert verdict(check) is Verdict.OK
    assert check.message == "2 of 2 other tasks accept connections"


def test_each_missing_peer_is_named(listening):
    """Each missing task is a line with its cause, and with the pod to look at."""
    refusing = refusing_address()
    view = replace(
        VIEW, jobs={"ps": ("c-ps-0.no-such-host.invalid:1", refusing), "worker": (f"127.0.0.1:{listening()}", "w1:1")}
    )

    summary, *missing = network_checks.peers(membership(view), 0.0)

    assert (summary.verdict, summary.message) == (Verdict.FAILED, "1 of 3 other tasks accept connections")
    assert [(one.name, verdict(one)) for one in missing] == [
        ("peer /job:ps/task:0", Verdict.FAILED),
        ("peer /job:ps/task:1", Verdict.FAILED),
    ]
    assert "name does not resolve" in missing[0].message
    assert "`kubectl -n n describe pod c-ps-0`" in missing[0].remedy
    assert f"{refusing}: connection refused" in missing[1].message


def test_lone_task_has_no_peers():
    """A task that sees no other has nothing to check."""
    (check,) = network_checks.peers(membership(replace(VIEW, jobs={})), 0.0)

    assert verdict(check) is Verdict.SKIPPED


# accelerators


def with_gpus(requested: int, healthy: int) -> Membership:
    tasks = {1: {GPU: healthy}} if healthy != requested else {}
    held = {"worker": contract.JobAccelerators(limits={GPU: requested}, tasks=tasks)} if requested else {}
    return membership(replace(VIEW, accelerators=held))


@pytest.mark.parametrize(
    ("requested", "healthy", "visible", "found"),
    [
        (0, 0, 0, (Verdict.OK, "requested none, healthy none, visible none")),
        (2, 2, 2, (Verdict.OK, "requested 2 GPU, healthy 2 GPU, visible 2 GPU")),
        (2, 1, 2, (Verdict.WARNING, "is unhealthy")),
        (2, 2, 1, (Verdict.WARNING, "hides granted devices")),
        (2, 2, 0, (Verdict.WARNING, "hides granted devices")),
        (0, 0, 3, (Verdict.WARNING, "not granted")),
    ],
)
def test_accelerators_are_compared(monkeypatch, requested, healthy, visible, found):
    """What was requested, what works and what the container shows agree, or a warning names all three."""
    monkeypatch.setattr(checks, "visible_accelerators", lambda: {"GPU": visible} if visible else {})

    check = checks.accelerators(with_gpus(requested, healthy))

    assert verdict(check) is found[0]
    assert found[1] in f"{check.message} {check.remedy}"


def test_accelerators_that_cannot_be_seen_are_skipped(monkeypatch):
    """Where nothing can be told of the container, nothing is compared."""
    monkeypatch.setattr(checks, "visible_accelerators", lambda: None)

    assert verdict(checks.accelerators(with_gpus(1, 1))) is Verdict.SKIPPED


# TensorFlow


def test_missing_tensorflow_is_skipped():
    """Not every container of a pod needs TensorFlow."""
    assert verdict(checks.tensorflow("/nowhere")) is Verdict.SKIPPED


def test_tensorflow_is_not_imported_without_memory_for_it(monkeypatch):
    """An import that could cost the training its memory is not made."""
    monkeypatch.setattr(checks.tensorflow_api, "is_installed", lambda: True)
    monkeypatch.setattr(checks.tensorflow_api, "load", lambda _: pytest.fail("it was imported"))
    monkeypatch.setattr(checks, "free_memory", lambda: 100 * 2**20)

    check = checks.tensorflow("/nowhere")

    assert verdict(check) is Verdict.SKIPPED
    assert "100 MiB of memory left" in check.message


def test_broken_tensorflow_fails(tmp_path, monkeypatch):
    """A TensorFlow that cannot be imported fails with its own reason in one line."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('libthing.so.1:\\n cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(checks, "free_memory", lambda: None)

    check = checks.tensorflow("/nowhere")

    assert verdict(check) is Verdict.FAILED
    assert "ImportError: libthing.so.1: cannot open" in check.message


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "1000", "memory.current": "400", "memory.stat": "anon 300\ninactive_file 50\n"}, 650),
        ({"memory.max": "1000", "memory.current": "1400", "memory.stat": "inactive_file 0\n"}, 0),
        ({"memory.max": "max", "memory.current": "400", "memory.stat": ""}, None),
        ({}, None),
        ({"memory.max": "1000"}, None),
    ],
    ids=["a limit", "above it", "no limit", "no control group", "half of one"],
)
def test_free_memory_is_what_the_limit_leaves(tmp_path, files, left):
    """Under a limit the rest counts, and the file cache as free; else nothing is known."""
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")

    assert free_memory(tmp_path) == left


# the whole


@pytest.fixture
def in_pod(mounted, monkeypatch, listening) -> contract.View:
    """This process is a healthy pod: worker 1, whose chief listens."""
    view = replace(VIEW, jobs={"chief": (f"127.0.0.1:{listening()}",), "worker": {1: f"127.0.0.1:{free_ports(1)[0]}"}})
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(mounted(view)))
    monkeypatch.setenv(contract.ENV_JOB, "worker")
    monkeypatch.setenv(contract.ENV_TASK_INDEX, "1")
    monkeypatch.setenv(contract.ENV_ADDRESS, view.jobs["worker"][1])
    monkeypatch.setattr(checks, "visible_accelerators", dict)
    return view


CHECKS = ["package", "task", "view", "own name", "own port", "peers", "accelerators", "tensorflow"]


@pytest.mark.usefixtures("in_pod")
def test_doctor_gives_a_line_to_each_check(capsys):
    """A healthy pod without TensorFlow: a line for each check, in their order, and code 0."""
    assert main(["doctor", "--timeout", "0"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == ["ok"] * 7 + ["skipped"]
    assert [line[9:21].strip() for line in lines] == CHECKS


@pytest.mark.usefixtures("in_pod")
def test_doctor_tells_programs(capsys):
    """``--json`` gives the worst verdict and every check."""
    assert main(["doctor", "--json", "--timeout", "0"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "ok"
    assert [one["name"] for one in told["checks"]] == CHECKS
    assert {key for one in told["checks"] for key in one} == {"name", "verdict", "message", "remedy"}


@pytest.mark.usefixtures("in_pod")
def test_warnings_alone_end_with_zero(monkeypatch, capsys):
    """A warning is told and does not fail a script."""
    monkeypatch.setattr(checks, "visible_accelerators", lambda: {"GPU": 1})

    assert main(["doctor", "--json", "--timeout", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "warning"


def test_doctor_of_a_lonely_task_ends_with_one(in_pod, capsys):
    """A failed check ends with code 1, and its line says what to do."""
    folder = Path(os.environ[contract.ENV_DIRECTORY])
    view = replace(in_pod, jobs={**in_pod.jobs, "chief": (refusing_address(),)})
    (folder / "..data" / "cluster.json").write_text(contract.dump(view))

    assert main(["doctor", "--timeout", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("failed")] == [
        ["peers", "0"],
        ["peer", "/job:chief/task:0"],
    ]


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ((Verdict.OK, Verdict.FAILED, Verdict.WARNING), Verdict.FAILED),
        ((Verdict.WARNING, Verdict.OK, Verdict.SKIPPED), Verdict.WARNING),
        ((Verdict.SKIPPED, Verdict.OK), Verdict.OK),
    ],
)
def test_the_worst_verdict_counts(verdicts, worst):
    """A failure counts more than a warning, and what was skipped not at all."""
    assert doctor.worst([Check("x", one, "m") for one in verdicts]) is worst


def skipped(said: str) -> list[str]:
    return [one["name"] for one in json.loads(said)["checks"] if one["verdict"] == "skipped"]


@pytest.mark.usefixtures("in_pod")
def test_doctor_without_a_view_says_what_it_could_not_check(capsys):
    """A missing view fails, and the checks that need it are skipped: the exit code is a failed check's."""
    assert main(["doctor", "--json", "--directory", "/nowhere"]) == 1

    assert skipped(capsys.readouterr().out) == CHECKS[3:]


@pytest.mark.usefixtures("in_pod")
def test_doctor_of_an_unknown_task_says_what_it_could_not_check(monkeypatch, capsys):
    """An environment that names the task by halves fails, and what depends on it is skipped."""
    monkeypatch.delenv(contract.ENV_JOB)

    assert main(["doctor", "--json"]) == 1

    assert skipped(capsys.readouterr().out) == CHECKS[2:]


@pytest.mark.usefixtures("in_pod")
def test_doctor_takes_an_address_for_wrong_that_is_none(monkeypatch, capsys):
    """An address without a port fails each check that needs it, and the others go on."""
    monkeypatch.setenv(contract.ENV_ADDRESS, "w1")

    assert main(["doctor", "--json", "--timeout", "0"]) == 1

    found = {one["name"]: one["verdict"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert (found["own name"], found["own port"], found["peers"]) == ("failed", "failed", "ok")


@pytest.mark.usefixtures("in_pod")
def test_doctor_outside_of_the_pods_checks_what_it_can(monkeypatch, capsys):
    """A process that is no task checks view and peers, and skips what only a task has."""
    for name in (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS):
        monkeypatch.delenv(name)

    main(["doctor", "--json", "--timeout", "0"])

    assert skipped(capsys.readouterr().out) == ["own name", "own port", "accelerators", "tensorflow"]
