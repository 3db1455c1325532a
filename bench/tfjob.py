"""TFJob of Kubeflow's training operator v1 beside this operator: the same jobs on the same API server, in turns.

Its webhook is left out, which spares it the validation of each job.  It makes a pod and a Service for each task.
"""

import asyncio
import base64
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.arena import Arena, declare, opened, settled
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.pairs import Run
from bench.shapes import Shape
from bench.stage import Stage
from bench.world import World, await_established
from local_kubernetes.go_toolchain import run_go
from local_kubernetes.ports import free_ports
from tests.support.objects import CRDS, NAMESPACES, Kind, Object
from tests.support.rbac import OPERATOR_USER
from tests.support.waiting import eventually

_DEFINITION = Path("manifests", "base", "crds", "kubeflow.org_tfjobs.yaml")
_PROGRAM = "./cmd/training-operator.v1"
_USER = "training-operator"
_TFJOBS = Kind("kubeflow.org/v1", "tfjobs")
_SECRETS = Kind("v1", "secrets")
#: Its defaults; and the highest values that help.
SETTINGS = {
    "default": (),
    "tuned": ("--kube-api-qps=5000", "--kube-api-burst=10000", "--controller-threads=8"),
}
#: How many runs it has by default: each takes as long as its limit of requests lets it.
_BY_DEFAULT = 2
_NAMESPACE, _SECRET = "kubeflow", "training-operator-webhook-cert"
#: The program only looks there.
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 - likewise
_ROLES = {"chief": "Chief", "ps": "PS", "worker": "Worker"}


async def against_tfjob(stage: Stage, name: str, shape: Shape, runs: int) -> Result:
    """Measure how long a shape takes to come into being as TFClusters, and as TFJobs.

    Returns:
        The series ``ours_s``, ``default_s`` and ``tuned_s`` (until all pods and Services exist, and for TFClusters all
        else), and for each of the three ``…_calls``, ``…_cpu_s`` and ``…_server_cpu_s``.
    """
    assert stage.tfjob_source is not None, "--tfjob-source names the sources of TFJob"
    world = stage.world
    program = await asyncio.to_thread(_build, stage.tfjob_source, stage.directory)
    shape = shape.scaled(stage.scale)
    result = Result(name, facts={"tasks": shape.total_tasks, "tuned": " ".join(SETTINGS["tuned"])})
    _install(world, stage.tfjob_source)
    world.fresh_operator()
    try:
        async with opened(world, shape.name) as arena:
            objects = await _ours(arena, shape, Result(""), objects=0)
            for run in range(runs):
                sides = ["ours", "tuned", *(["default"] if run < _BY_DEFAULT else [])]
                random.shuffle(sides)
                for side in sides:
                    if side == "ours":
                        await _ours(arena, shape, result, objects=objects)
                    else:
                        await _theirs(arena, shape, result, side=side, program=program)
                now = {side: f"{result.series[f'{side}_s'][-1]:.3f} s" for side in ("ours", *SETTINGS)}
                print(f"  {run + 1}/{runs}: {now}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(_CERTIFICATES, ignore_errors=True)
    return result


async def _ours(arena: Arena, shape: Shape, result: Result, *, objects: int) -> int:
    """Let this operator create the shape; return the number of objects, which the next run waits for."""
    world = arena.world
    position = await asyncio.to_thread(world.audit.position)
    server, own = world.server_cpu_seconds(), cpu_seconds([world.operator.pid])
    reached = arena.observer.reached(added=objects) if objects else None
    begin = time.perf_counter()
    await declare(arena, shape)
    took = await reached - begin if reached else 0.0
    await settled(arena, shape)
    run = Run(took, cpu_seconds([world.operator.pid]) - own, world.server_cpu_seconds() - server)
    await world.quiet()
    _note(result, "ours", run, len(await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)))
    made = await arena.count()
    await arena.clear()
    return made


async def _theirs(arena: Arena, shape: Shape, result: Result, *, side: str, program: Path) -> None:
    world = arena.world
    with _manager(world, program, SETTINGS[side]) as pid:
        # Its first job opens its connections, and does not count.
        await _post_jobs(arena, Shape(1, 1), awaited=2)
        await arena.clear(_TFJOBS)
        position = await asyncio.to_thread(world.audit.position)
        server, own = world.server_cpu_seconds(), cpu_seconds([pid])
        took = await _post_jobs(arena, shape, awaited=2 * shape.total_tasks)
        await world.quiet(_USER)
        run = Run(took, cpu_seconds([pid]) - own, world.server_cpu_seconds() - server)
        _note(result, side, run, len(await asyncio.to_thread(world.audit.since, position, user=_USER)))
    await arena.clear(_TFJOBS)


def _note(result: Result, side: str, run: Run, calls: int) -> None:
    readings = {"s": run.seconds, "calls": calls, "cpu_s": run.own_cpu, "server_cpu_s": run.server_cpu}
    result.add(**{f"{side}_{quantity}": reading for quantity, reading in readings.items()})


async def _post_jobs(arena: Arena, shape: Shape, *, awaited: int) -> float:
    path = _TFJOBS.path(arena.namespace)
    bodies = [_tfjob(cluster) for cluster in shape.manifests(arena.namespace)]
    reached = arena.observer.reached(added=awaited)
    begin = time.perf_counter()
    await arena.send_all([("POST", path, body) for body in bodies], concurrency=16)
    return await reached - begin


def _tfjob(cluster: Object) -> Object:
    """Return the TFJob of the same tasks with the same templates; a TFJob does not support filters."""
    replicas = {
        _ROLES[job]: {"replicas": of["replicas"], "restartPolicy": "Never", "template": of["template"]}
        for job, of in cluster["spec"]["jobs"].items()
    }
    about = {"name": cluster["metadata"]["name"], "namespace": cluster["metadata"]["namespace"]}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": about,
        "spec": {"tfReplicaSpecs": replicas},
    }


def _build(source: Path, directory: Path) -> Path:
    program = directory / "training-operator"
    print("building TFJob's program; minutes the first time …", file=sys.stderr, flush=True)
    run_go(["build", "-o", program, _PROGRAM], folder=source.absolute())
    return program


def _install(world: World, source: Path) -> None:
    definition = yaml.safe_load((source / _DEFINITION).read_text(encoding="utf-8"))
    world.objects.create(CRDS, "", definition)
    await_established(world.objects, definition["metadata"]["name"])
    world.objects.create(NAMESPACES, "", {"metadata": {"name": _NAMESPACE}})
    world.objects.create(_SECRETS, _NAMESPACE, {"metadata": {"name": _SECRET}})


@contextmanager
def _manager(world: World, program: Path, settings: tuple[str, ...]) -> Iterator[int]:
    """Run TFJob's program for the length of a ``with`` block; yield its process number when it is ready."""
    metrics, probes, webhook = free_ports(3)
    kubeconfig = world.plane.kubeconfig_for(_USER, groups=("system:masters",))
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--enable-scheme=tfjob",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
        f"--webhook-server-port={webhook}",
        *settings,
    ]
    log = world.operator.log.with_name("tfjob.log")
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: _leave_certificates(world), what="TFJob has made its certificates", within=120)
        eventually(lambda: _is_ready(process, probes), what=f"TFJob is ready; its log: {log}", within=300)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _leave_certificates(world: World) -> bool:
    """Do the kubelet's part: copy the Secret that the program fills to the folder where it reads the files."""
    data = (world.objects.get(_SECRETS, _NAMESPACE, _SECRET) or {}).get("data") or {}
    _CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, content in data.items():
        (_CERTIFICATES / name).write_bytes(base64.b64decode(content))
    return "tls.crt" in data


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "TFJob's program has ended"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
