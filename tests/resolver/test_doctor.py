"""The findings of ``doctor``, check by check, in real folders, on real ports and with real names."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from resolver.resolver_world import (
    GPU,
    IDENTITY,
    SETTINGS,
    SOURCES,
    Kubelet,
    be_task,
    refusing_address,
    speaker,
    view_of,
)
from support.waiting import GUARD

import tfcluster_resolver
from local_kubernetes.ports import free_ports
from tfcluster_resolver import contract
from tfcluster_resolver.__main__ import main
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.commands import doctor
from tfcluster_resolver.commands.doctor import Check

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
VIEW = view_of({"worker": ("127.0.0.1:1", "127.0.0.1:2")}, epoch=4)
WORKER = Task("worker", 1, "127.0.0.1:2")


def membership(view: contract.View = VIEW, own: Task | None = WORKER) -> Membership:
    return Membership(view=view, own=own)


def at(address: str) -> Task:
    return Task("worker", 1, address)


@pytest.fixture
def listening() -> Iterator[Callable[..., str]]:
    with ExitStack() as opened:
        yield lambda answer=b"": opened.enter_context(speaker(answer, closes=True))


def expect(check: Check | None, verdict: str, *words: str) -> None:
    assert check is not None
    assert (check.verdict, bool(check.remedy)) == (verdict, verdict in {WARNING, FAILED})
    text = f"{check.message} {check.remedy}"
    assert check.message
    assert "\n" not in text
    assert [word for word in words if word not in text] == []


# package, task and view


@pytest.mark.parametrize(
    ("version", "verdict", "words"),
    [
        (None, OK, "tfcluster_resolver {ours} in {sources}"),
        ("0.0.1", OK, "; not taken: 0.0.1 in {other}/tfcluster_resolver"),
        ("99.0", WARNING, "in {sources} hides the newer 99.0 in {other}/tfcluster_resolver"),
    ],
)
def test_second_copy_of_the_package_is_named(tmp_path, version, verdict, words):
    (tmp_path / "tfcluster_resolver").mkdir()
    if version is not None:
        (tmp_path / "tfcluster_resolver" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    check = doctor.package([str(SOURCES.parent), str(tmp_path)])
    expect(check, verdict, words.format(ours=tfcluster_resolver.__version__, sources=SOURCES, other=tmp_path))


@pytest.mark.parametrize(
    ("jobs", "own", "verdict", "words"),
    [
        (VIEW.jobs, WORKER, OK, ["n/c, epoch 4, in ", "/cluster.json, written "]),
        ({"worker": ("127.0.0.1:1", "127.0.0.1:3")}, WORKER, FAILED, ["127.0.0.1:3", "127.0.0.1:2"]),
        ({"worker": {1: "127.0.0.1:3"}}, WORKER, FAILED, ["127.0.0.1:3", "127.0.0.1:2"]),
        ({"worker": ("127.0.0.1:1",)}, WORKER, WARNING, ["it ends at /job:worker/task:0"]),
        ({"ps": ("127.0.0.1:9",)}, WORKER, OK, []),
        ({"worker": {3: "127.0.0.1:9"}}, WORKER, OK, []),
        ({"worker": ("127.0.0.1:9",)}, Task("evaluator", 0, "127.0.0.1:2"), OK, []),
    ],
)
def test_view_is_compared_with_the_task(tmp_path, jobs, own, verdict, words):
    """It has the task at its address; device filters can hide it, and an evaluator is in no view."""
    view = replace(VIEW, jobs=jobs)
    Kubelet(tmp_path).write(view)
    expect(doctor.view(membership(view, own), tmp_path / "cluster.json", str(tmp_path)), verdict, *words)


def test_view_that_never_changes_is_a_warning(tmp_path):
    """A file without the kubelet's link next to it, as mounted with subPath, never changes."""
    (tmp_path / "cluster.json").write_text(contract.dump(VIEW))
    expect(doctor.view(membership(), tmp_path / "cluster.json", str(tmp_path)), WARNING, "subPath")


# TF_CONFIG


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
        ({"task": {"type": "ps", "index": 0}}, 'it is for {"type": "ps", "index": 0}, and this is /job:worker/task:1'),
        ({"task": None, "cluster": 5}, "it is for null, and this is /job:worker/task:1; it lacks"),
    ],
)
def test_tf_config_is_compared_with_the_view(change, found):
    config = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}}
    check = doctor.tf_config(membership(), {"TF_CONFIG": json.dumps({**config, **change})})
    expect(check, OK if found.startswith("it says") else WARNING, found)


def test_tf_config_that_is_not_json_is_a_warning():
    """It is skipped without the variable, and outside a task."""
    for text in ("", "{", "[]"):
        expect(doctor.tf_config(membership(), {"TF_CONFIG": text}), WARNING)
    assert doctor.tf_config(membership(), {}) is None
    assert doctor.tf_config(membership(own=None), {"TF_CONFIG": "{}"}) is None


# name and port


def test_own_name_leads_here(monkeypatch):
    """A look-up that does not end is aborted."""
    expect(doctor.own_name(at("localhost:2"), "c", GUARD), OK, "127.0.0.1")
    expect(
        doctor.own_name(at("no-such.invalid:2"), "c", GUARD), FAILED, "no-such.invalid does not resolve", "Service c"
    )
    elsewhere = "192.0.2.1"  # an address for documentation: no machine has it
    expect(doctor.own_name(at(f"{elsewhere}:2"), "c", GUARD), FAILED, f"{elsewhere}, which is not this pod")
    monkeypatch.setattr(doctor, "_LOOK_UP", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: threading.Event().wait())
    expect(doctor.own_name(at("slow:2"), "c", 0.0), FAILED, "looking up slow takes over 0 s")


def test_own_port_is_free_or_taken_by_a_grpc_server(listening):
    """A listener that does not send gRPC's greeting is another program, for any response."""
    expect(doctor.own_port(at(f"127.0.0.1:{free_ports(1)[0]}")), OK, "is free")
    expect(doctor.own_port(at(listening(SETTINGS))), OK, "is answered by a gRPC server")
    for answer in (b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\4"):
        expect(doctor.own_port(at(listening(answer))), FAILED, "is taken by a program")


def test_privileged_port_fails_without_permission():
    if os.geteuid() != 0 or int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1:
        pytest.skip("needs root, to become another user, and ports that only root may have")

    os.seteuid(65534)
    try:
        check = doctor.own_port(at("127.0.0.1:1"))
    finally:
        os.seteuid(0)

    expect(check, FAILED, "this user cannot listen on port 1")


# peers


def test_peers_that_listen_are_well(listening):
    view = replace(VIEW, jobs={"ps": (listening(),), "worker": (listening(), "w1:1")})
    (check,) = doctor.peers(membership(view), 0.0)
    expect(check, OK, "2 of 2 other tasks accept connections")
    (check,) = doctor.peers(membership(replace(VIEW, jobs={})), 0.0)
    expect(check, SKIPPED)


def test_each_missing_peer_is_named(listening):
    refusing = refusing_address()
    view = replace(VIEW, jobs={"ps": ("c-ps-0.no-such-host.invalid:1", refusing), "worker": (listening(), "w1:1")})

    summary, *missing = doctor.peers(membership(view), 0.0)

    assert (summary.verdict, summary.message) == (FAILED, "1 of 3 other tasks accept connections")
    assert [one.name for one in missing] == ["peer /job:ps/task:0", "peer /job:ps/task:1"]
    expect(missing[0], FAILED, "name does not resolve", "`kubectl -n n describe pod c-ps-0`")
    expect(missing[1], FAILED, f"{refusing}: connection refused")


# accelerators


@pytest.mark.parametrize(
    ("requested", "healthy", "visible", "found"),
    [
        (0, 0, 0, (OK, "requested none, healthy none, visible none")),
        (2, 2, 2, (OK, "requested 2 GPU, healthy 2 GPU, visible 2 GPU")),
        (2, 1, 2, (WARNING, "is unhealthy")),
        (2, 2, 1, (WARNING, "hides granted devices")),
        (2, 2, 0, (WARNING, "hides granted devices")),
        (0, 0, 3, (WARNING, "not granted")),
        (1, 1, None, (SKIPPED, "cannot be counted")),
    ],
)
def test_accelerators_are_compared(monkeypatch, requested, healthy, visible, found):
    tasks = {1: {GPU: healthy}} if healthy != requested else {}
    held = {"worker": contract.JobAccelerators(limits={GPU: requested}, tasks=tasks)} if requested else {}
    shown = visible if visible is None else {"GPU": visible} if visible else {}
    monkeypatch.setattr(doctor, "visible_accelerators", lambda: shown)
    expect(doctor.accelerators(membership(replace(VIEW, accelerators=held)), WORKER), *found)


# the whole


CHECKS = ["package", "task", "view", "own name", "own port", "peers", "accelerators"]


@pytest.fixture
def in_pod(tmp_path, monkeypatch, listening) -> None:
    view = replace(VIEW, jobs={"chief": (listening(),), "worker": {1: f"127.0.0.1:{free_ports(1)[0]}"}})
    Kubelet(tmp_path).write(view)
    be_task(monkeypatch, "worker", 1, view.jobs["worker"][1], tmp_path)
    monkeypatch.setattr(doctor, "visible_accelerators", dict)


@pytest.mark.usefixtures("in_pod")
def test_doctor_gives_a_line_to_each_check(capsys):
    assert main(["doctor", "--timeout", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == ["ok"] * 7
    assert [line[9:21].strip() for line in lines] == CHECKS

    assert main(["doctor", "--json", "--timeout", "0"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdict"] == "ok"
    assert [one["name"] for one in shown["checks"]] == CHECKS
    assert {key for one in shown["checks"] for key in one} == {"name", "verdict", "message", "remedy"}


STALE = {"TF_CONFIG": '{"task": {"type": "worker", "index": 1}}'}
#: Worker 1 does not listen, and without an identity it is one of the others.
LONELY = {"peers": "failed", "peer /job:worker/task:1": "failed"}
OF_A_TASK = ("own name", "own port", "accelerators")


@pytest.mark.usefixtures("in_pod")
@pytest.mark.parametrize(
    ("environment", "code", "found"),
    [
        (STALE, 0, {"TF_CONFIG": "warning"}),
        ({contract.ENV_DIRECTORY: "/nowhere"}, 1, {"view": "failed", **dict.fromkeys(CHECKS[3:], "skipped")}),
        ({contract.ENV_JOB: None}, 1, {"task": "failed", **dict.fromkeys(CHECKS[2:], "skipped")}),
        (dict.fromkeys(IDENTITY), 1, {"task": "warning", **dict.fromkeys(OF_A_TASK, "skipped"), **LONELY}),
        ({contract.ENV_ADDRESS: "w1"}, 1, {"view": "failed", "own name": "failed", "own port": "failed"}),
    ],
    ids=["stale TF_CONFIG", "no view", "unknown task", "no task", "no address"],
)
def test_doctor_checks_what_it_can(monkeypatch, capsys, environment, code, found):
    for name, value in environment.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    assert main(["doctor", "--json", "--timeout", "0"]) == code
    shown = json.loads(capsys.readouterr().out)
    assert {one["name"]: one["verdict"] for one in shown["checks"] if one["verdict"] != "ok"} == found
    assert shown["verdict"] == next(one for one in ("failed", "warning") if one in found.values())
