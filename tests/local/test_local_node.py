"""The node of `tfcluster local` against a bare API server: pods are played by processes as the kubelet plays them."""

import os
import time

import pytest
import yaml
from local.node_world import NAMESPACE, SLEEP, container, on_a_node
from support.memory_kubernetes import MemoryKubernetes

from tfcluster_resolver import contract

#: Starts a process in a group of its own, and prints its number.
LEAVES = """
import subprocess
below = subprocess.Popen(['python3', '-c', 'import time; time.sleep(600)'], start_new_session=True)
print(below.pid, flush=True)
"""


@on_a_node()
async def test_the_end_of_a_program_is_the_end_of_its_pod_and_of_what_it_started(world) -> None:
    ends = {
        "well": (LEAVES, "Succeeded", 0, "Completed"),
        "badly": ("raise SystemExit(7)", "Failed", 7, "Error"),
        "killed": ("import os; os.kill(os.getpid(), 9)", "Failed", 137, "Error"),
    }
    for name, (program, *_) in ends.items():
        world.pod(name, program)
    for name, (_, *expected) in ends.items():
        ended = await world.ended(name)
        assert [world.phase(name), ended["exitCode"], ended["reason"]] == expected
        assert (world.status(name)["observedGeneration"], world.ready(name)) == (1, False)
    with pytest.raises(ProcessLookupError):
        os.kill(int(world.said("well")[0]), 0)


@on_a_node()
async def test_a_pod_says_why_its_program_failed_or_did_not_start(world) -> None:
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    world.pod("log", "print('first'); raise SystemExit('boom')", main=fallback)
    program = "open('/dev/my-message', 'w').write('told'); raise SystemExit(1)"
    world.pod("file", program, main={"terminationMessagePath": "/dev/my-message", **fallback})
    world.pod("missing", containers=[{"name": "main", "image": "none", "command": ["/no/such/program"]}])
    world.pod("without", containers=[{"name": "main", "image": "none"}])
    assert (await world.ended("log"))["message"] == "first\nboom"
    assert (await world.ended("file"))["message"] == "told"
    missing = await world.ended("missing")
    assert (missing["exitCode"], missing["reason"]) == (128, "StartError")
    assert "/no/such/program" in missing["message"]
    assert "--entrypoint" in (await world.ended("without"))["message"]


@on_a_node()
async def test_a_deletion_is_obeyed_by_sigterm_and_then_sigkill(world) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))"
    world.pod(program=deaf + LEAVES + SLEEP, terminationGracePeriodSeconds=1)
    await world.until(world.said)
    await world.deleted()
    assert "asked" in world.said()
    with pytest.raises(ProcessLookupError):
        os.kill(int(world.said()[0]), 0)
    last = [one.object for one in world.kube.history if one.resource == "pods"][-1]
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert last["status"]["observedGeneration"] == last["metadata"]["generation"] == 2


@on_a_node()
async def test_init_containers_run_in_turn_and_sidecars_beside(world) -> None:
    told = world.folder / "told"

    def say(word: str) -> str:
        return f"open('{told}', 'a').write('{word} ')"

    side = f"import signal, time\nsignal.signal(15, lambda *_: ({say('side-over')}, exit(0)))\n{say('side')}\n{SLEEP}"
    after_side = f"import time\nwhile 'side' not in open('{told}').read(): time.sleep(0.01)\n"
    init = [
        container(say("one"), "one"),
        container(side, "side", restartPolicy="Always"),
        container(after_side + say("two"), "two"),
    ]
    world.pod(program=say("main"), initContainers=init)
    await world.ended()
    assert told.read_text().split() == ["one", "side", "two", "main", "side-over"]
    assert world.phase() == "Succeeded"


@on_a_node()
async def test_a_failed_init_container_is_the_end(world) -> None:
    world.pod(program="print('never')", initContainers=[container("raise SystemExit(3)", "first")])
    await world.until(lambda: world.phase() == "Failed")
    assert world.status()["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert "terminated" not in world.status()["containerStatuses"][0]["state"]
    assert world.said() == []


@on_a_node()
async def test_variables_are_expanded_by_kubernetes_rules(world) -> None:
    world.config_map("c", key="from-map")
    world.secret("s", key="hidden")
    main = yaml.safe_load("""
    env:
    - {name: A, value: a}
    - {name: B, value: $(A)-$(LATER)-$$(A)}
    - {name: LATER, value: x}
    - {name: MAP, valueFrom: {configMapKeyRef: {name: c, key: key}}}
    - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: key}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: GONE, valueFrom: {configMapKeyRef: {name: none, key: key, optional: true}}}
    envFrom: [{prefix: PRE_, configMapRef: {name: c}}]
    args: [B MAP SECRET NAME MEMORY GONE PRE_key, $(A) $$(A) $(NONE)]
    resources: {limits: {memory: 2Gi}}
    """)
    program = "import os, sys; print([os.environ.get(n) for n in sys.argv[1].split()], sys.argv[2])"
    world.pod(program=program, main=main)
    await world.ended()
    values = ["a-$(LATER)-$(A)", "from-map", "hidden", "p", "2048", None, "from-map"]
    assert world.said() == [f"{values} a $(A) $(NONE)"]


@on_a_node()
async def test_nothing_of_the_users_shell_leaks_in(world, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_SECRET_ACCESS_KEY", "private"), ("TF_CONFIG", "{}"), ("HOME", "/home/of-the-user")):
        monkeypatch.setenv(name, value)
    world.pod(program="import os; print(*os.environ); print(os.environ['HOME'])")
    await world.ended()
    names, home = world.said()
    assert home == "/home/of-the-user"
    assert {"AWS_SECRET_ACCESS_KEY", "TF_CONFIG", "CUDA_VISIBLE_DEVICES"} & {*names.split()} == {"CUDA_VISIBLE_DEVICES"}


@on_a_node()
async def test_volumes_are_folders_and_their_paths_are_rewritten(world) -> None:
    world.config_map("c", a="1", b="2")
    world.secret("s", t="3")
    volumes = yaml.safe_load("""
    - {name: map, configMap: {name: c, items: [{key: a, path: in/a}]}}
    - {name: mix, projected: {sources: [{configMap: {name: c, items: [{key: b, path: b}]}}, {secret: {name: s}},
        {downwardAPI: {items: [{path: n, fieldRef: {fieldPath: metadata.name}}]}}]}}
    - {name: empty, emptyDir: {}}
    - {name: kept, persistentVolumeClaim: {claimName: k}}
    """)
    places = {"map": "/map", "mix": "/mix/ed", "empty": "/empty"}
    mounts = [{"name": name, "mountPath": path} for name, path in places.items()]
    mounts.append({"name": "kept", "mountPath": "/kept", "subPath": "below"})
    write = container("open('/empty/x', 'w').write('4'); open('/kept/y', 'a').write('5')", "w", volumeMounts=mounts)
    program = "import os, sys; print(*(open(one).read() for one in sys.argv[1:]), os.environ['AT'])"
    main = {
        "args": ["/map/in/a", "/mix/ed/b", "/mix/ed/t", "/mix/ed/n", "/empty/x", "/kept/y"],
        "env": [{"name": "AT", "value": "file:///kept/y:/map:/mapped"}],
        "volumeMounts": mounts,
    }
    for name in ("p", "q"):
        world.pod(name, program, main=main, initContainers=[write], volumes=volumes)
        await world.ended(name)
    *texts, at = world.said("q")[0].split()
    assert texts == ["1", "2", "3", "q", "4", "55"]
    assert at.startswith(f"file://{world.folder / 'claims' / NAMESPACE / 'k' / 'below' / 'y'}:/")
    assert at.endswith(":/mapped")


@on_a_node()
async def test_files_of_volumes_have_their_modes(world) -> None:
    """A script in a ConfigMap can be run, and ssh takes a key that other users cannot read."""
    world.config_map("c", a="echo ran", b="")
    world.secret("s", t="", u="")
    volumes = yaml.safe_load("""
    - {name: m1, configMap: {name: c, defaultMode: 0755}}
    - {name: m2, secret: {secretName: s, defaultMode: 0400, items: [
        {key: t, path: t}, {key: u, path: in/u, mode: 0640}]}}
    - {name: m3, projected: {defaultMode: 0444, sources: [{configMap: {name: c}},
        {downwardAPI: {items: [{path: n, fieldRef: {fieldPath: metadata.name}, mode: 0600}]}}]}}
    - {name: m4, downwardAPI: {defaultMode: 0660, items: [{path: n, fieldRef: {fieldPath: metadata.name}}]}}
    - {name: m5, secret: {secretName: s}}
    """)
    program = (
        "import os, subprocess, sys; subprocess.run(sys.argv[1], shell=True);"
        "print(*(oct(os.stat(file).st_mode & 0o777)[2:] for file in sys.argv[1:]))"
    )
    mounts = [{"name": f"m{number}", "mountPath": f"/m{number}"} for number in range(1, 6)]
    files = ["/m1/a", "/m2/t", "/m2/in/u", "/m3/b", "/m3/n", "/m4/n", "/m5/t"]
    world.pod(program=program, main={"args": files, "volumeMounts": mounts}, volumes=volumes)
    await world.ended()
    assert world.said() == ["ran", "755 400 640 444 600 660 644"]


@on_a_node()
async def test_a_running_program_sees_a_changed_config_map(world) -> None:
    program = "import time\nlast = ''\nwhile last != 'two':\n now = open('/map/a').read()\n"
    program += " if now != last: print(now, flush=True)\n last = now\n time.sleep(0.01)"
    mount = {"volumeMounts": [{"name": "map", "mountPath": "/map"}]}
    world.pod(program=program, main=mount, volumes=[{"name": "map", "configMap": {"name": "late"}}])
    await world.until(lambda: world.notices)
    assert world.notices[0] == "p waits: ConfigMap late does not exist"
    world.config_map("late", a="one")
    await world.until(lambda: world.said() == ["one"])
    world.kube.patch("configmaps", NAMESPACE, "late", {"data": {"a": "two"}})
    assert (await world.ended())["exitCode"] == 0
    assert world.said() == ["one", "two"]


@on_a_node()
async def test_parts_of_the_image_and_the_node_of_a_template_are_here(world) -> None:
    (world.folder / "src").mkdir()
    (world.folder / "src" / "x.py").write_text("import os; print('ran in', os.getcwd())")
    main = {"command": ["/usr/bin/python3.9", "/opt/examples/x.py"], "workingDir": "/opt/examples"}
    world.pod(main=main, nodeName="elsewhere")
    await world.ended()
    assert world.said() == [f"ran in {world.folder / 'src'}"]


WORKER = "c-worker-0.c.default.svc:2222"
PLACED = {"hostname": "c-worker-0", "subdomain": "c"}


@on_a_node()
async def test_tasks_meet_on_ports_of_this_machine(world) -> None:
    view = contract.View("c", "default", "u", 1, "grpc", {"worker": (WORKER,)})
    world.config_map("c-worker", **{"cluster.json": contract.dump(view)})
    program = (
        "import json, os, sys\n"
        "seen = json.load(open(os.environ['TFCLUSTER_DIR'] + '/cluster.json'))['jobs']['worker'][0]\n"
        "print(seen, os.environ['TFCLUSTER_ADDRESS'], *sys.argv[1:])"
    )
    options = [f"at={WORKER}", "--port", "2222", "--grpc_port=2222", "--steps", "2222", "0.0.0.0:2222"]
    main = {
        "args": [*options, "$(PORT)", "serve --at :$(PORT)", "c-worker-0.c:$(PORT)"],
        "env": [{"name": "TFCLUSTER_ADDRESS", "value": WORKER}, {"name": "PORT", "value": "2222"}],
        "volumeMounts": [{"name": "tfcluster-view", "mountPath": "/etc/tfcluster"}],
    }
    volumes = [{"name": "tfcluster-view", "configMap": {"name": "c-worker"}}]
    world.pod("c-worker-0", program, main=main, volumes=volumes, **PLACED)
    await world.ended("c-worker-0")
    here, *rest = world.said("c-worker-0")[0].split()
    port = here.removeprefix("127.0.0.1:")
    assert port.isdecimal()
    told = [f"at={here}", "--port", port, f"--grpc_port={port}", "--steps", "2222", f"0.0.0.0:{port}"]
    assert rest == [here, *told, port, "serve", "--at", f":{port}", here]


@on_a_node()
async def test_readiness_follows_the_probe(world) -> None:
    flag = world.folder / "flag"
    probe = {"exec": {"command": ["python3", "-c", f"open('{flag}')"]}, "periodSeconds": 0.05, "timeoutSeconds": 9}
    main = {"readinessProbe": {**probe, "failureThreshold": 1}}
    world.pod(program=SLEEP, main=main)
    await world.until(lambda: world.phase() == "Running")
    assert not world.ready()
    flag.touch()
    await world.until(world.ready)
    assert world.condition("ContainersReady")["status"] == "True"
    flag.unlink()
    await world.until(lambda: not world.ready())


@pytest.mark.parametrize("kind", ["tcpSocket", "httpGet"])
@on_a_node()
async def test_network_probes_reach_the_port_on_this_machine(world, kind: str) -> None:
    program = (
        "import http.server, os\n"
        "port = int(os.environ['TFCLUSTER_ADDRESS'].rpartition(':')[2])\n"
        "http.server.ThreadingHTTPServer(('', port), http.server.SimpleHTTPRequestHandler).serve_forever()"
    )
    main = {
        "env": [{"name": "TFCLUSTER_ADDRESS", "value": WORKER}],
        "ports": [{"name": "task", "containerPort": 2222}],
        "readinessProbe": {kind: {"port": "task"}, "periodSeconds": 0.05},
    }
    world.pod("c-worker-0", program, main=main, **PLACED)
    await world.until(lambda: world.ready("c-worker-0"))


@on_a_node()
async def test_gpus_are_hidden_from_a_container_that_requests_none(world, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    program = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    world.pod("a", program, main={"resources": {"limits": {"nvidia.com/gpu": 2}}})
    world.pod("b", program)
    await world.ended("a")
    await world.ended("b")
    assert (world.said("a"), world.said("b")) == (["0,1"], ["-1"])


def test_what_happened_long_ago_is_forgotten() -> None:
    kube = MemoryKubernetes(time.time)
    for number in range(50):
        kube.create("configmaps", NAMESPACE, {"metadata": {"name": f"c-{number}"}})
    kube.compact(kube.revision - 10)
    assert len(kube.state.demand("configmaps").log) == 10
    assert len(kube.list("configmaps")) == 50


@on_a_node()
async def test_logs_are_answered_as_by_the_api(world) -> None:
    world.pod(program="import time\nfor n in range(4): print('line', n, flush=True); time.sleep(0.05)")

    async def log(name: str = "p", **query: str) -> str:
        return b"".join([chunk async for chunk in world.node.log_of(NAMESPACE, name, query)]).decode()

    await world.until(world.said)
    assert await log(follow="true") == "line 0\nline 1\nline 2\nline 3\n"
    assert await log(tailLines="1") == "line 3\n"
    stamped = await log(tailLines="1", timestamps="true")
    assert time.strftime("%Y-", time.gmtime()) in stamped
    assert stamped.endswith("Z line 3\n")
    assert await log(sinceTime="2999-01-01T00:00:00Z") == ""
    world.pod("q", containers=[container("print(1)", "one"), container("print(2)", "two")])
    await world.until(lambda: world.phase("q") == "Succeeded")
    assert await log("q", container="two") == "2\n"
    with pytest.raises(Exception, match="not found"):
        await log("none")
    with pytest.raises(Exception, match="does not exist"):
        await log("q", container="three")
