"""What `tfcluster local` refuses of a manifest, and the addresses, paths and logs of what it runs."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from local.local_world import cluster, job

from local_kubernetes.ports import free_ports
from tfcluster.commands.root import root
from tfcluster.errors import ManifestError
from tfcluster.local import addresses, manifest
from tfcluster.local.addresses import Addresses, NoPortError, Ports
from tfcluster.local.environment import PathMap, PathMapping, Rewriting
from tfcluster.local.logs import ContainerLog, answer

ROOT = Path(__file__).resolve().parents[2]


def read(tmp_path: Path, *objects: Any, **options: Any) -> list[Any]:
    file = tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return manifest.load([file], **options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"replica": 2}, "manifest.yaml:8: spec.jobs.worker.replica"),
        ({"replicas": "many"}, "spec.jobs.worker.replicas"),
        ({"deviceFilters": ["/job:none"]}, "names a job that is not declared"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, change: Any, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        read(tmp_path, cluster(jobs={"worker": {**job("pass"), **change}}))


def test_other_kinds_are_rejected_or_skipped(tmp_path: Path) -> None:
    """What runs programs must not look as if it ran; what pods use is taken, from lists too; the rest is named."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    whole = {"apiVersion": "v1", "kind": "List", "items": [cluster(jobs={"worker": job("pass")}), config_map]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    with pytest.raises(ManifestError, match="Deployment: not supported locally"):
        read(tmp_path, whole, deployment)
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "net"}}
    told: list[str] = []
    assert [one["kind"] for one in read(tmp_path, whole, policy, tell=told.append)] == ["ConfigMap", "TFCluster"]
    assert told == ["skipped (not used locally): NetworkPolicy net"]


@pytest.mark.parametrize(
    ("kind", "field", "value", "words"),
    [
        ("ConfigMap", "data", {"a": "x", "b": 5}, "manifest.yaml:4: ConfigMap c: data.b must be a text: put it in"),
        ("ConfigMap", "data", {"b": None}, "data.b must be a text"),
        ("Secret", "stringData", {"b": {}}, "stringData.b must be a text"),
    ],
)
def test_invalid_config_data_is_rejected(tmp_path: Path, kind: str, field: str, value: Any, words: str) -> None:
    broken = {"apiVersion": "v1", field: value, "kind": kind, "metadata": {"name": "c"}}
    with pytest.raises(ManifestError, match="this cannot run locally") as refusal:
        read(tmp_path, broken, cluster(jobs={"worker": job("pass")}))
    assert words in str(refusal.value)


def test_container_without_a_known_program_is_rejected(tmp_path: Path) -> None:
    """An image's entry point cannot be played; TensorFlow's server (taskServer) can."""
    bare, beside = {"name": "a", "image": "b"}, {"name": "c", "image": "b"}

    def of(*containers: Any, **job: Any) -> list[Any]:
        return read(tmp_path, cluster(jobs={"ps": {**job, "template": {"spec": {"containers": [*containers]}}}}))

    manifest.check_programs(of(bare, taskServer=True), {})
    for objects, where in (
        (of(bare), "job ps, container a"),
        (of({**bare, "args": ["x"]}), "job ps, container a"),
        (of(bare, beside, taskServer=True), "job ps, container c"),
    ):
        with pytest.raises(ManifestError, match=where):
            manifest.check_programs(objects, {})
        manifest.check_programs(objects, {"": ["true"]})


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_can_be_read(example: Path) -> None:
    objects = manifest.load([example])
    manifest.check_programs(objects, {})
    assert "image" in manifest.unplayed(manifest.clusters_of(objects))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--name", "../x"), "is not a valid name"),
        (("--map", "opt=."), "is not IMAGEPATH=PATH"),
        (("--map", "/opt=/no/such/folder"), "no such file or folder"),
        (("--python", "/no/such/python"), "is not an executable program"),
        (("--entrypoint", "a="), "names no program"),
    ],
)
def test_meaningless_options_are_rejected(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump(cluster(jobs={"worker": job("pass")})), encoding="utf-8")
    done = CliRunner().invoke(root, ["local", "run", "-f", str(file), *options])
    assert (done.exit_code, words in done.stderr) == (2, True)


def test_a_port_in_use_is_passed_over() -> None:
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert addresses.default_choice()[-1] < int(first), "an outgoing connection could get a task's port"
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        choice = [taken.getsockname()[1], *free_ports(1)]
        ports = Ports(choice)
        assert ports.take() == choice[1]
        with pytest.raises(NoPortError):
            ports.take()


def test_an_address_keeps_its_port() -> None:
    known = Addresses(Ports())
    name = "c-worker-0.c.ns.svc:2222"
    assert known.local(name) == known.local(name) == known.local("c-worker-0.c.ns.svc.cluster.local:2222")
    assert known.local("c-worker-1.c.ns.svc:2222") != known.local(name)
    assert known.local("example.com:443") == "example.com:443"


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("c-worker-0.c.ns.svc:2222", "127.0.0.1:PORT"),
        ("grpc://c-worker-0.c.ns.svc.cluster.local:2222/x", "grpc://127.0.0.1:PORT/x"),
        ('{"cluster": {"worker": ["c-worker-0.c:2222"]}}', '{"cluster": {"worker": ["127.0.0.1:PORT"]}}'),
        ("c-worker-0.c.ns:6006", "127.0.0.1:6006"),
        ("host=c-worker-0.c.ns.svc,", "host=127.0.0.1,"),
        ("c-worker-9.c.ns.svc:2222", "c-worker-9.c.ns.svc:2222"),
        ("my.c-worker-0.c.ns.svc:2222", "my.c-worker-0.c.ns.svc:2222"),
        ("c-worker-0.c.other.svc:2222", "c-worker-0.c.other.svc:2222"),
        ("c-worker-0.c.ns.svc:22222", "127.0.0.1:22222"),
        ("tcp://0.0.0.0:2222 localhost:22222", "tcp://0.0.0.0:PORT localhost:22222"),
        ("/data/x:/database:file:///data", "/here/x:/database:file:///here"),
        ("/a/data/x data/x ~/data", "/a/data/x data/x ~/data"),
        ("open('/data/in/y')", "open('/inner/y')"),
    ],
)
def test_names_and_paths_are_rewritten_where_they_stand_alone(text: str, rewritten: str) -> None:
    known = Addresses(Ports())
    port = known.local_port("c-worker-0.c.ns.svc:2222")
    paths = PathMap([PathMapping("/data", Path("/here")), PathMapping("/data/in/", Path("/inner"))])
    rewriting = Rewriting(paths, known, hostname="c-worker-0", service="c", namespace="ns")
    assert rewriting.text(text) == rewritten.replace("PORT", str(port))


def read_log(log: ContainerLog, **query: str) -> bytes:
    async def whole() -> bytes:
        return b"".join([chunk async for chunk in answer(log, query)])

    return asyncio.run(whole())


def test_a_progress_bar_is_one_line(tmp_path):
    log = ContainerLog(tmp_path / "log")
    log.write(b"begun\n10%\r20%\r30%\ndone\n")
    log.close()
    assert read_log(log, tailLines="2") == b"10%\r20%\r30%\ndone\n"
    assert read_log(log, sinceTime="2020-01-01T00:00:00Z") == b"begun\n10%\r20%\r30%\ndone\n"


def test_a_followed_log_comes_in_whole_lines(tmp_path):
    log = ContainerLog(tmp_path / "log")
    lines = [b"%06d " % number + b"x" * 9000 for number in range(300)]
    log.write(b"\n".join(lines) + b"\n")
    log.close()

    async def followed() -> bytes:
        return b"".join([chunk async for chunk in log.follow(0)])

    kept = asyncio.run(followed()).splitlines()
    assert [line.split(b" ", 1)[1] for line in kept] == lines
    assert read_log(log, follow="true").splitlines() == lines
