"""The node of `tfcluster local` against a bare API server: pods are played by processes as the kubelet plays them."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.waiting import GUARD

from memory_kubernetes import DEFAULT_RESOURCES, MemoryKubernetes, Resource
from tfcluster.local import devices
from tfcluster.local.addresses import Addresses, Ports
from tfcluster.local.node import Node
from tfcluster.local.paths import Mapping
from tfcluster.local.run import forget
from tfcluster.local.surroundings import Surroundings
from tfcluster_resolver import contract

Object = dict[str, Any]
NAMESPACE = "default"


class NodeWorld:
    """An API server, a node, and what pods say."""

    def __init__(self, folder: Path, *, gpus: int = 0, **surroundings: Any) -> None:
        kinds = (*DEFAULT_RESOURCES, Resource(plural="secrets", kind="Secret"))
        self.kube = MemoryKubernetes(time.time, kinds)
        self.folder = folder
        self.lines: dict[str, list[str]] = {}
        self.notices: list[str] = []
        self.ports = Ports(folder / "ports")
        self.node = Node(
            self.kube,
            Surroundings(
                folder=folder,
                python=Path(sys.executable),
                addresses=Addresses(self.ports),
                devices=devices.Devices(gpus),
                heard=self._hear,
                notice=self.notices.append,
                **surroundings,
            ),
        )
        self._changed = asyncio.Event()
        self.kube.subscribers.append(lambda _: self._changed.set())

    def _hear(self, _namespace: str, pod: str, _container: str, line: bytes) -> None:
        self.lines.setdefault(pod, []).append(line.decode())

    def pod(self, name: str = "p", *, containers: list[Object] | None = None, program: str = "", **spec: Any) -> None:
        """Create a pod, by default with one container that runs a Python program."""
        given = containers or [container(program)]
        body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": given, **spec}}
        self.kube.create("pods", NAMESPACE, body)

    def status(self, name: str = "p") -> Object:
        return (self.kube.get("pods", NAMESPACE, name) or {}).get("status", {})

    def condition(self, kind: str, name: str = "p") -> Object:
        return next((one for one in self.status(name).get("conditions", ()) if one["type"] == kind), {})

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        began = time.monotonic()
        while not holds():
            assert time.monotonic() < began + GUARD, (self.kube.list("pods"), self.lines, self.notices)
            self._changed.clear()
            waiting = asyncio.create_task(self._changed.wait())
            # NB: lines of logs and files change nothing in the API server.
            await asyncio.wait([waiting], timeout=0.02)
            waiting.cancel()

    async def ended(self, name: str = "p") -> Object:
        """Wait for the end of a pod, and give its only container's."""
        await self.until(lambda: self.status(name).get("phase") in ("Succeeded", "Failed"))
        return self.status(name)["containerStatuses"][0]["state"]["terminated"]

    def said(self, name: str = "p") -> list[str]:
        return self.lines.get(name, [])


def container(program: str = "", name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": "none", "command": ["python3", "-c", program], **fields}


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    """Runs a coroutine that gets a world, and ends the world."""

    def run(story: Callable[[NodeWorld], Coroutine[Any, Any, None]], **arguments: Any) -> None:
        async def whole() -> None:
            world = NodeWorld(tmp_path, **arguments)
            try:
                await story(world)
            finally:
                await world.node.stop(0.0)
                world.ports.release()

        asyncio.run(whole())

    return run


# --- how pods end


@pytest.mark.parametrize(
    ("program", "phase", "code", "reason"),
    [
        ("print('well')", "Succeeded", 0, "Completed"),
        ("raise SystemExit(7)", "Failed", 7, "Error"),
        ("import os; os.kill(os.getpid(), 9)", "Failed", 137, "Error"),
    ],
)
def test_the_end_of_a_program_is_the_end_of_its_pod(play, program: str, phase: str, code: int, reason: str) -> None:
    """The exit code, or 128 plus the signal, and the phase are as container runtimes and the kubelet have them."""

    async def story(world: NodeWorld) -> None:
        world.pod(program=program)
        ended = await world.ended()
        assert (world.status()["phase"], ended["exitCode"], ended["reason"]) == (phase, code, reason)
        assert world.status()["observedGeneration"] == 1
        assert world.condition("Ready")["status"] == "False"

    play(story)


def test_the_end_of_a_program_ends_what_it_started(play) -> None:
    """A process that went into the background, into a group of its own, does not outlive its container."""
    leaves = """
import subprocess
below = subprocess.Popen(['python3', '-c', 'import time; time.sleep(600)'], start_new_session=True)
print(below.pid)
"""

    async def story(world: NodeWorld) -> None:
        world.pod(program=leaves)
        assert (await world.ended())["exitCode"] == 0
        with pytest.raises(ProcessLookupError):
            os.kill(int(world.said()[0]), 0)

    play(story)


def test_what_a_failed_program_said_last_is_its_message(play) -> None:
    """By FallbackToLogsOnError the last lines, and by a file of terminationMessagePath what is in it."""

    async def story(world: NodeWorld) -> None:
        fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        world.pod(containers=[container("print('first'); raise SystemExit('boom')", **fallback)])
        assert (await world.ended())["message"] == "first\nboom"
        program = "open('/dev/my-message', 'w').write('told'); raise SystemExit(1)"
        world.pod("q", containers=[container(program, terminationMessagePath="/dev/my-message", **fallback)])
        assert (await world.ended("q"))["message"] == "told"

    play(story)


def test_a_program_that_is_not_there_is_a_start_error(play) -> None:
    """A command that this machine does not have ends the pod with 128, and so does none; the words say what to do."""

    async def story(world: NodeWorld) -> None:
        world.pod(containers=[{"name": "main", "image": "none", "command": ["/no/such/program"]}])
        ended = await world.ended()
        assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
        assert "/no/such/program" in ended["message"]
        world.pod("q", containers=[{"name": "main", "image": "none"}])
        assert "--entrypoint" in (await world.ended("q"))["message"]

    play(story)


def test_a_deletion_is_obeyed_by_sigterm_and_then_sigkill(play) -> None:
    """A program gets SIGTERM and its grace; one that ignores it is killed with all below it; then the pod goes."""
    deaf = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))
below = subprocess.Popen(['python3', '-c', 'import time; time.sleep(600)'], start_new_session=True)
print('deaf', below.pid, flush=True)
time.sleep(600)
"""

    async def story(world: NodeWorld) -> None:
        world.pod(program=deaf, terminationGracePeriodSeconds=1)
        await world.until(lambda: any("deaf" in one for one in world.said()))
        below = int(world.said()[0].split()[1])
        world.kube.delete("pods", NAMESPACE, "p")
        await world.until(lambda: world.kube.get("pods", NAMESPACE, "p") is None)
        assert "asked" in world.said()
        with pytest.raises(ProcessLookupError):
            os.kill(below, 0)
        last = [one.object for one in world.kube.history if one.resource == "pods"][-1]
        assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert last["status"]["observedGeneration"] == last["metadata"]["generation"] == 2

    play(story)


def test_a_pod_that_runs_too_long_is_ended(play) -> None:
    """A pod's activeDeadlineSeconds ends the pod with the kubelet's reason."""

    async def story(world: NodeWorld) -> None:
        world.pod(program="import time; time.sleep(600)", activeDeadlineSeconds=1)
        await world.ended()
        assert (world.status()["phase"], world.status()["reason"]) == ("Failed", "DeadlineExceeded")

    play(story)


# --- several containers


def test_init_containers_run_in_turn_and_sidecars_beside(play, tmp_path: Path) -> None:
    """Each init container ends before the next begins, a sidecar runs on, and it ends after the containers."""
    say = "open('{0}', 'a').write('{1} ')".format

    async def story(world: NodeWorld) -> None:
        told = tmp_path / "told"
        waits = "\nimport signal, time\nsignal.signal(signal.SIGTERM, lambda *_: (%s, exit(0)))\ntime.sleep(600)"
        world.pod(
            initContainers=[
                container(say(told, "one"), "one"),
                container(say(told, "side") + waits % say(told, "side-over"), "side", restartPolicy="Always"),
                container(
                    f"import time\nwhile 'side' not in open('{told}').read(): time.sleep(0.01)\n" + say(told, "two"),
                    "two",
                ),
            ],
            containers=[container(say(told, "main"), "main")],
        )
        await world.ended()
        assert told.read_text().split() == ["one", "side", "two", "main", "side-over"]
        assert world.status()["phase"] == "Succeeded"

    play(story)


def test_a_failed_init_container_is_the_end(play) -> None:
    """The containers never start; the pod has failed."""

    async def story(world: NodeWorld) -> None:
        world.pod(initContainers=[container("raise SystemExit(3)", "first")], containers=[container("print('never')")])
        await world.until(lambda: world.status().get("phase") == "Failed")
        assert world.status()["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        assert "terminated" not in world.status()["containerStatuses"][0]["state"]
        assert world.said() == []

    play(story)


# --- what a program gets


def test_variables_are_expanded_by_kubernetes_rules(play) -> None:
    """$(NAME) stands for a variable above, $$ for a dollar sign; what is unknown stays; references give values."""

    async def story(world: NodeWorld) -> None:
        world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "c"}, "data": {"key": "from-map"}})
        secret = {"metadata": {"name": "s"}, "data": {"key": base64.b64encode(b"hidden").decode()}}
        world.kube.create("secrets", NAMESPACE, secret)
        env = [
            {"name": "A", "value": "a"},
            {"name": "B", "value": "$(A)-$(LATER)-$$(A)"},
            {"name": "LATER", "value": "x"},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "key"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "key", "optional": True}}},
        ]
        program = "import os, sys; print([os.environ.get(n) for n in sys.argv[1].split()], sys.argv[2])"
        one = container(
            program,
            args=["B MAP SECRET NAME MEMORY GONE PRE_key", "$(A) $$(A) $(NONE)"],
            env=env,
            envFrom=[{"prefix": "PRE_", "configMapRef": {"name": "c"}}],
            resources={"limits": {"memory": "2Gi"}},
        )
        world.pod(containers=[one])
        await world.ended()
        assert world.said() == [
            "['a-$(LATER)-$(A)', 'from-map', 'hidden', 'p', '2048', None, 'from-map'] a $(A) $(NONE)"
        ]

    play(story)


def test_nothing_of_the_users_shell_leaks_in(play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program sees its home and its paths, and none of what else the user has exported."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "private")
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setenv("HOME", "/home/of-the-user")

    async def story(world: NodeWorld) -> None:
        world.pod(program="import os; print(sorted(os.environ)); print(os.environ['HOME'])")
        await world.ended()
        names, home = world.said()
        assert home == "/home/of-the-user"
        assert "AWS_SECRET_ACCESS_KEY" not in names
        assert "TF_CONFIG" not in names
        assert "CUDA_VISIBLE_DEVICES" in names

    play(story)


def test_volumes_are_folders_and_their_paths_are_rewritten(play, tmp_path: Path) -> None:
    """ConfigMaps, Secrets, projected and downward volumes, an emptyDir that two containers share, and a claim's."""

    async def story(world: NodeWorld) -> None:
        world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}})
        world.kube.create("secrets", NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"t": "3"}})
        volumes = [
            {"name": "map", "configMap": {"name": "c", "items": [{"key": "a", "path": "in/a"}]}},
            {"name": "mix", "projected": {"sources": [
                {"configMap": {"name": "c", "items": [{"key": "b", "path": "b"}]}},
                {"secret": {"name": "s"}},
                {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
            {"name": "empty", "emptyDir": {}},
            {"name": "kept", "persistentVolumeClaim": {"claimName": "k"}},
        ]  # fmt: skip
        mounts = [
            {"name": "map", "mountPath": "/map"},
            {"name": "mix", "mountPath": "/mix/ed"},
            {"name": "empty", "mountPath": "/empty"},
            {"name": "kept", "mountPath": "/kept", "subPath": "below"},
        ]
        write = container("open('/empty/x', 'w').write('4'); open('/kept/y', 'a').write('5')", "w", volumeMounts=mounts)
        read = container(
            "import os, sys; print(*(open(one).read() for one in sys.argv[1:]), os.environ['AT'])",
            args=["/map/in/a", "/mix/ed/b", "/mix/ed/t", "/mix/ed/n", "/empty/x", "/kept/y"],
            env=[{"name": "AT", "value": "file:///kept/y:/map:/mapped"}],
            volumeMounts=mounts,
        )
        for name in ("p", "q"):
            world.pod(name, initContainers=[write], containers=[read], volumes=volumes)
            await world.ended(name)
        told = world.said("q")[0].split()
        assert told[:6] == ["1", "2", "3", "q", "4", "55"]
        kept = tmp_path / "claims" / NAMESPACE / "k" / "below" / "y"
        assert told[6].startswith(f"file://{kept}:/")
        assert told[6].endswith(":/mapped")

    play(story)


def test_files_of_volumes_have_their_modes(play) -> None:
    """A script in a ConfigMap can be run, and a key is readable by nobody else, as ssh wants it."""

    async def story(world: NodeWorld) -> None:
        world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "c"}, "data": {"a": "echo ran", "b": ""}})
        world.kube.create("secrets", NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"t": "", "u": ""}})
        name = {"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}
        volumes = [
            {"name": "m1", "configMap": {"name": "c", "defaultMode": 0o755}},
            {"name": "m2", "secret": {"secretName": "s", "defaultMode": 0o400, "items": [
                {"key": "t", "path": "t"}, {"key": "u", "path": "in/u", "mode": 0o640}]}},
            {"name": "m3", "projected": {"defaultMode": 0o444, "sources": [
                {"configMap": {"name": "c"}}, {"downwardAPI": {"items": [{**name, "mode": 0o600}]}}]}},
            {"name": "m4", "downwardAPI": {"defaultMode": 0o660, "items": [name]}},
            {"name": "m5", "secret": {"secretName": "s"}},
        ]  # fmt: skip
        files = ["/m1/a", "/m2/t", "/m2/in/u", "/m3/b", "/m3/n", "/m4/n", "/m5/t"]
        one = container(
            "import os, subprocess, sys; subprocess.run(sys.argv[1], shell=True);"
            "print(*(oct(os.stat(file).st_mode & 0o777)[2:] for file in sys.argv[1:]))",
            args=files,
            volumeMounts=[{"name": f"m{number}", "mountPath": f"/m{number}"} for number in range(1, 6)],
        )
        world.pod(containers=[one], volumes=volumes)
        await world.ended()
        assert world.said() == ["ran", "755 400 640 444 600 660 644"]

    play(story)


def test_a_running_program_sees_a_changed_config_map(play) -> None:
    """The files are swapped at once and whole, as the kubelet does it; what is missing is awaited."""

    async def story(world: NodeWorld) -> None:
        program = "import time\nlast = ''\nwhile last != 'two':\n now = open('/map/a').read()\n"
        program += " if now != last: print(now, flush=True)\n last = now\n time.sleep(0.01)"
        one = container(program, volumeMounts=[{"name": "map", "mountPath": "/map"}])
        world.pod(containers=[one], volumes=[{"name": "map", "configMap": {"name": "late"}}])
        await world.until(lambda: world.notices)
        assert world.notices[0] == "p waits: ConfigMap late does not exist"
        world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "late"}, "data": {"a": "one"}})
        await world.until(lambda: world.said() == ["one"])
        world.kube.patch("configmaps", NAMESPACE, "late", {"data": {"a": "two"}})
        assert (await world.ended())["exitCode"] == 0
        assert world.said() == ["one", "two"]

    play(story)


def test_parts_of_the_image_are_folders_here(play, tmp_path: Path) -> None:
    """What --map names stands for the image's path in commands, and so does a working directory."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("import os; print('ran in', os.getcwd())")

    async def story(world: NodeWorld) -> None:
        one = {"name": "main", "image": "none", "command": ["/usr/bin/python3.9", "/opt/examples/x.py"]}
        world.pod(containers=[{**one, "workingDir": "/opt/examples"}])
        await world.ended()
        assert world.said() == [f"ran in {tmp_path / 'src'}"]

    play(story, mapped=[Mapping("/opt/examples", tmp_path / "src")])


def test_tasks_meet_on_ports_of_this_machine(play) -> None:
    """A task's own port, its DNS name in a view, in a variable and in an argument all become the same port."""
    name = "c-worker-0.c.default.svc:2222"
    view = contract.View("c", "default", "u", 1, "grpc", {"worker": (name,)})

    async def story(world: NodeWorld) -> None:
        text = {"cluster.json": contract.dump(view)}
        world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "c-worker"}, "data": text})
        one = container(
            "import json, os, sys\n"
            "seen = json.load(open(os.environ['TFCLUSTER_DIR'] + '/cluster.json'))['jobs']['worker'][0]\n"
            "print(seen, os.environ['TFCLUSTER_ADDRESS'], *sys.argv[1:])",
            args=[
                *(f"at={name}", "--port", "2222", "--grpc_port=2222", "--steps", "2222", "0.0.0.0:2222"),
                *("$(PORT)", "serve --at :$(PORT)", "c-worker-0.c:$(PORT)"),
            ],
            env=[{"name": "TFCLUSTER_ADDRESS", "value": name}, {"name": "PORT", "value": "2222"}],
            volumeMounts=[{"name": "tfcluster-view", "mountPath": "/etc/tfcluster"}],
        )
        volumes = [{"name": "tfcluster-view", "configMap": {"name": "c-worker"}}]
        world.pod("c-worker-0", containers=[one], volumes=volumes, hostname="c-worker-0", subdomain="c")
        await world.ended("c-worker-0")
        here, *rest = world.said("c-worker-0")[0].split()
        port = here.removeprefix("127.0.0.1:")
        assert port.isdecimal()
        told = [f"at={here}", "--port", port, f"--grpc_port={port}", "--steps", "2222", f"0.0.0.0:{port}"]
        of_variables = [port, "serve", "--at", f":{port}", here]
        assert rest == [here, *told, *of_variables]

    play(story)


# --- probes


def test_readiness_follows_the_probe(play, tmp_path: Path) -> None:
    """A pod is ready when its probe passes, and no longer when it fails."""
    flag = tmp_path / "flag"

    async def story(world: NodeWorld) -> None:
        probe = {
            "exec": {"command": ["python3", "-c", f"open('{flag}')"]},
            "periodSeconds": 0.05,
            "failureThreshold": 1,
        }
        world.pod(containers=[container("import time; time.sleep(600)", readinessProbe={**probe, "timeoutSeconds": 9})])
        await world.until(lambda: world.status().get("phase") == "Running")
        assert world.condition("Ready")["status"] == "False"
        flag.touch()
        await world.until(lambda: world.condition("Ready")["status"] == "True")
        assert world.condition("ContainersReady")["status"] == "True"
        flag.unlink()
        await world.until(lambda: world.condition("Ready")["status"] == "False")

    play(story)


@pytest.mark.parametrize("kind", ["tcpSocket", "httpGet"])
def test_network_probes_reach_the_port_on_this_machine(play, kind: str) -> None:
    """A probe of the task's own port asks the port that stands for it; a named port of a container is known."""
    name = "c-worker-0.c.default.svc:2222"
    program = (
        "import http.server, os\n"
        "port = int(os.environ['TFCLUSTER_ADDRESS'].rpartition(':')[2])\n"
        "http.server.ThreadingHTTPServer(('', port), http.server.SimpleHTTPRequestHandler).serve_forever()"
    )

    async def story(world: NodeWorld) -> None:
        one = container(
            program,
            env=[{"name": "TFCLUSTER_ADDRESS", "value": name}],
            ports=[{"name": "task", "containerPort": 2222}],
            readinessProbe={kind: {"port": "task"}, "periodSeconds": 0.05},
        )
        world.pod("c-worker-0", containers=[one], hostname="c-worker-0", subdomain="c")
        await world.until(lambda: world.condition("Ready", "c-worker-0").get("status") == "True")

    play(story)


def test_a_program_that_does_not_live_is_ended(play) -> None:
    """A liveness probe waits for the startup probe, and its failure ends the program by SIGTERM."""

    async def story(world: NodeWorld) -> None:
        one = container(
            "import time; time.sleep(600)",
            startupProbe={"exec": {"command": ["true"]}, "periodSeconds": 0.05, "timeoutSeconds": 9},
            livenessProbe={"exec": {"command": ["false"]}, "periodSeconds": 0.05, "timeoutSeconds": 9},
        )
        world.pod(containers=[one])
        assert (await world.ended())["exitCode"] == 143

    play(story)


def test_hooks_run_beside_the_program_and_before_its_end(play, tmp_path: Path) -> None:
    """What postStart does is done when the program runs; what preStop does comes before SIGTERM; a failed hook ends."""
    told = tmp_path / "told"

    def say(word: str) -> Object:
        return {"exec": {"command": ["sh", "-c", f"echo {word} >> {told}"]}}

    async def story(world: NodeWorld) -> None:
        program = f"import signal, time\nsignal.signal(15, lambda *_: (open('{told}', 'a').write('term'), exit(0)))\n"
        one = container(
            program + "time.sleep(600)", lifecycle={"postStart": say("started"), "preStop": say("stopping")}
        )
        world.pod(containers=[one])
        await world.until(lambda: told.exists() and told.read_text() == "started\n")
        world.kube.delete("pods", NAMESPACE, "p")
        await world.until(lambda: world.kube.get("pods", NAMESPACE, "p") is None)
        assert told.read_text().split() == ["started", "stopping", "term"]
        failing = {"postStart": {"exec": {"command": ["false"]}}}
        world.pod("q", containers=[container("import time; time.sleep(600)", lifecycle=failing)])
        assert (await world.ended("q"))["exitCode"] == 137

    play(story)


@pytest.mark.parametrize("hook", [{"exec": {"command": ["sleep", "600"]}}, {"sleep": {"seconds": 600}}])
def test_a_hook_gets_no_more_than_the_grace_period(play, hook: Object) -> None:
    """A preStop hook that hangs holds up neither the end of its pod nor that of the run."""

    async def story(world: NodeWorld) -> None:
        for name, grace in (("deleted", 1), ("left", 600)):
            one = container("import time; time.sleep(600)", lifecycle={"preStop": hook})
            world.pod(name, containers=[one], terminationGracePeriodSeconds=grace)
            await world.until(lambda name=name: world.status(name).get("phase") == "Running")
        world.kube.delete("pods", NAMESPACE, "deleted")
        await world.until(lambda: world.kube.get("pods", NAMESPACE, "deleted") is None)
        async with asyncio.timeout(GUARD):
            await world.node.stop(0.2)

    play(story)


def test_a_readiness_gate_is_awaited(play) -> None:
    """A pod whose containers are ready is ready when somebody sets the conditions that it names."""

    async def story(world: NodeWorld) -> None:
        gate = {"conditionType": "example.com/warm"}
        world.pod(program="import time; time.sleep(600)", readinessGates=[gate])
        await world.until(lambda: world.condition("ContainersReady").get("status") == "True")
        assert world.condition("Ready")["status"] == "False"
        met = {"type": "example.com/warm", "status": "True"}
        change = {"status": {"conditions": [*world.status()["conditions"], met]}}
        world.kube.patch("pods", NAMESPACE, "p", change, subresource="status")
        await world.until(lambda: world.condition("Ready").get("status") == "True")
        assert world.condition("example.com/warm")["status"] == "True"

    play(story)


def test_a_sidecar_that_ends_is_started_again_after_a_pause(play) -> None:
    """Its status says that it backs off and how it ended; the log of its last run can be had."""

    async def story(world: NodeWorld) -> None:
        side = container("print('ran'); raise SystemExit(5)", "side", restartPolicy="Always")
        world.pod(initContainers=[side], containers=[container("import time; time.sleep(600)")])

        def status() -> Object:
            return world.status().get("initContainerStatuses", [{}])[0]

        await world.until(lambda: status().get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")
        assert (status()["restartCount"], status()["lastState"]["terminated"]["exitCode"]) == (1, 5)

    play(story)


# --- devices


def test_gpus_are_granted_whole_and_waited_for(play) -> None:
    """Each pod sees its own GPUs; one that asks for more than are free waits in the scheduler's words."""

    async def story(world: NodeWorld) -> None:
        program = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)"
        two = container(program, resources={"limits": {"nvidia.com/gpu": 2}})
        one = container(program, resources={"limits": {"nvidia.com/gpu": "1"}})
        world.pod("a", containers=[two, container(program, "other")])
        await world.until(lambda: len(world.said("a")) == 2)
        assert sorted(world.said("a")) == ["-1", "0,1"]
        granted = world.status("a")["containerStatuses"][0]
        assert granted["allocatedResources"] == {"nvidia.com/gpu": "2"}
        assert len(granted["allocatedResourcesStatus"][0]["resources"]) == 2
        world.pod("b", containers=[two])
        await world.until(lambda: world.condition("PodScheduled", "b"))
        waits = world.condition("PodScheduled", "b")
        assert (waits["status"], waits["reason"]) == ("False", "Unschedulable")
        assert "Insufficient nvidia.com/gpu" in waits["message"]
        world.pod("c", containers=[one])
        await world.until(lambda: world.said("c"))
        assert world.said("c") == ["2"]
        world.kube.delete("pods", NAMESPACE, "a", grace=0)
        await world.until(lambda: world.said("b"))
        assert world.said("b") == ["0,1"]

    play(story, gpus=3)


def test_a_node_that_a_template_names_is_this_one(play) -> None:
    """There is no other node here."""

    async def story(world: NodeWorld) -> None:
        world.pod(program="print('ran')", nodeName="elsewhere")
        await world.ended()
        assert world.said() == ["ran"]

    play(story)


def test_what_happened_long_ago_is_forgotten() -> None:
    """A run may last for days: old versions go, and who follows closely misses nothing."""
    kube = MemoryKubernetes(time.time)
    for number in range(50):
        kube.create("configmaps", NAMESPACE, {"metadata": {"name": f"c-{number}"}})

    forget(kube, keep=10)

    assert len(kube.history) == 0
    assert len(kube.state.demand("configmaps").log) == 10
    assert len(kube.list("configmaps")) == 50


# --- logs


def test_logs_are_answered_as_by_the_api(play) -> None:
    """Tails, times, limits and following; a container must be named where there are several."""

    async def story(world: NodeWorld) -> None:
        world.pod(program="import time\nfor n in range(4): print('line', n, flush=True); time.sleep(0.05)")

        async def log(name: str = "p", **query: str) -> str:
            return b"".join([chunk async for chunk in world.node.log_of(NAMESPACE, name, query)]).decode()

        await world.until(world.said)
        assert await log(follow="true") == "line 0\nline 1\nline 2\nline 3\n"
        assert await log(tailLines="1") == "line 3\n"
        assert await log(limitBytes="6") == "line 0"
        stamped = await log(tailLines="1", timestamps="true")
        assert time.strftime("%Y-", time.gmtime()) in stamped
        assert stamped.endswith("Z line 3\n")
        assert await log(sinceTime="2999-01-01T00:00:00Z") == ""
        world.pod("q", containers=[container("print(1)", "one"), container("print(2)", "two")])
        await world.until(lambda: world.status("q").get("phase") == "Succeeded")
        assert await log("q", container="two") == "2\n"
        with pytest.raises(Exception, match="choose one of"):
            await log("q")
        with pytest.raises(Exception, match="not found"):
            await log("none")

    play(story)
