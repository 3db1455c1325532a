"""One start of the one-node cluster, step by step, on a machine where nothing of an earlier one is left."""

import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from local_kubernetes import binaries, node_files, node_layout, processes
from local_kubernetes.api_client import POLL_SECONDS
from local_kubernetes.control_plane import ControlPlane, check_alive
from local_kubernetes.node_files import NODE_NAME
from local_kubernetes.node_layout import (
    ADDRESSES,
    CABLE,
    CNI_FOLDERS,
    COMPLETE,
    DEVICES,
    MOUNT_POINTS,
    NETWORK,
    STATE,
    UNHEALTHY_DEVICES,
)
from local_kubernetes.progress import LocalKubernetesError, tell


class NodeStart:
    """One start of the cluster, after node.clear()."""

    def __init__(self) -> None:
        self.hyperkube = binaries.hyperkube()
        self.coredns = binaries.coredns()
        self.pause = binaries.pause()
        self.plane = node_layout.plane()
        self.enter: tuple[str, ...] = ()

    def run(self) -> None:
        """Start everything and wait until pods can run."""
        began = time.monotonic()
        for folder in ("kubelet", "cni", "cni-results", "var-log", UNHEALTHY_DEVICES.name):
            (STATE / folder).mkdir(parents=True)
        self._make_cgroups()
        self._make_namespaces()
        self._write_node_files()
        self._launch("containerd", "containerd", "--config", STATE / "containerd.toml")
        self.plane = ControlPlane(self.plane.state, ADDRESSES, enter=self.enter)
        self.plane.launch_server()
        self._launch_node()
        self.plane.launch_controllers()
        self._wait()
        COMPLETE.touch()
        tell(f"the cluster is up after {time.monotonic() - began:.1f} s")

    def _make_cgroups(self) -> None:
        folders = node_layout.cgroup_folders()
        for folder in folders:
            folder.mkdir(exist_ok=True)
        if len(folders) == 1:  # version 2: the children of a group get only the controllers that it enables
            for group in (folders[0].parent, folders[0]):
                present = (group / "cgroup.controllers").read_text().split()
                (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in present))

    def _make_namespaces(self) -> None:
        for folder in MOUNT_POINTS:
            folder.mkdir(parents=True, exist_ok=True)
        namespaces = ("--mount", "--propagation=private", "--net", "--ipc", "--pid", "--mount-proc")
        processes.launch(["unshare", *namespaces, "--fork", "--kill-child", self.pause], name="namespaces", state=STATE)
        first = self._first_process()
        self.enter = node_layout.enter(first)
        _run("ip", "link", "add", CABLE, "type", "veth", "peer", "name", "host", "netns", str(first))
        _run("ip", "address", "add", f"{NETWORK.host_end}/30", "dev", CABLE)
        _run("ip", "link", "set", CABLE, "up")
        script = (Path(__file__).parent / "node_namespaces.sh").read_text()
        variables = {"STATE": str(STATE), "NODE_ADDRESS": NETWORK.node, "SERVICE_RANGE": NETWORK.services}
        _run(*self.enter, "sh", "-c", script, environment=variables)
        _run(*self.enter, "ip", "address", "add", f"{NETWORK.node_end}/30", "dev", "host")
        _run(*self.enter, "ip", "link", "set", "host", "up")
        for destination in (NETWORK.pods, NETWORK.services):
            _run("ip", "route", "add", destination, "via", NETWORK.node_end)

    def _first_process(self) -> int:
        """Wait for process 1 of the new PID namespace; return its process ID outside."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if first := node_layout.first_process():
                return first
            time.sleep(POLL_SECONDS / 5)
        log = (STATE / "log" / "namespaces.log").read_text()
        raise LocalKubernetesError(f"no namespaces for the node: {log}")

    def _write_node_files(self) -> None:
        plugins = next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), CNI_FOLDERS[0])
        containerd = node_files.containerd_config(
            STATE, sandbox_image=binaries.PAUSE_IMAGE_NAME, plugins=plugins, snapshotter=_snapshotter()
        )
        files = {
            "containerd.toml": containerd,
            "cni/pods.conflist": node_files.cni_config(NETWORK),
            "resolv.conf": f"nameserver {NETWORK.node}\n",
            "kubelet.json": node_files.kubelet_config(STATE, NETWORK),
            "kube-proxy.json": node_files.kube_proxy_config(STATE, NETWORK),
            "Corefile": node_files.corefile(STATE, NETWORK),
        }
        for name, text in files.items():
            (STATE / name).write_text(text)

    def _launch_node(self) -> None:
        credentials = self.plane.write_component_kubeconfig
        credentials("kube-proxy", "system:kube-proxy")
        credentials("coredns", "coredns", groups=("system:masters",))
        kubelet = credentials(
            NODE_NAME,
            f"system:node:{NODE_NAME}",
            groups=("system:nodes",),
            alternative_names=(f"DNS:{NODE_NAME}", f"IP:{NETWORK.node}", "IP:127.0.0.1"),
        )
        _wait_until((STATE / "containerd.sock").exists, what="containerd's socket")
        import_image(binaries.pause_image())
        plugin = (f"--count={len(DEVICES)}", f"--unhealthy-dir={UNHEALTHY_DEVICES}")
        self._launch("fake-gpu-plugin", self.hyperkube, "fake-gpu-plugin", *plugin)
        self._launch(
            "kubelet",
            self.hyperkube,
            "kubelet",
            f"--config={STATE / 'kubelet.json'}",
            f"--kubeconfig={kubelet}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NETWORK.node}",
            "--node-labels=nvidia.com/gpu.product=fake",
        )
        self._launch("kube-proxy", self.hyperkube, "kube-proxy", f"--config={STATE / 'kube-proxy.json'}")
        self._launch("coredns", self.coredns, "-conf", STATE / "Corefile")

    def _launch(self, name: str, *arguments: str | Path) -> None:
        processes.launch(arguments, name=name, state=STATE, enter=self.enter)

    def _wait(self) -> None:
        def usable(node: dict[str, Any]) -> bool:
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
            devices = node["status"].get("allocatable", {}).get("nvidia.com/gpu")
            return ready and devices == str(len(DEVICES)) and not node["spec"].get("taints")

        def alive() -> None:
            check_alive(STATE)
            check_alive(self.plane.state)

        api = self.plane.api
        api.wait_for(f"/api/v1/nodes/{NODE_NAME}", usable, what="the node to be Ready", alive=alive)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        api.wait_for(account, what="the default service account", alive=alive)
        _wait_until(_dns_ready, what="CoreDNS")


def _dns_ready() -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy could not reach the node
    with suppress(OSError), opener.open(f"http://{NETWORK.node_end}:8181/ready", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _wait_until(condition: Callable[[], bool], *, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalKubernetesError(f"waited {seconds:.0f} s for {what}; the logs are in {STATE / 'log'}")
        time.sleep(POLL_SECONDS)


def _snapshotter() -> str:
    """Choose overlays if the disk of STATE supports them; a disk that is an overlay itself does not."""
    lower, upper, work, top = (STATE / "overlay-trial" / name for name in ("lower", "upper", "work", "top"))
    for folder in (lower, upper, work, top):
        folder.mkdir(parents=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    trial: list[str | Path] = ["unshare", "--mount", "mount", "-t", "overlay", "-o", options, "overlay", top]
    works = subprocess.run(trial, check=False, capture_output=True).returncode == 0
    shutil.rmtree(STATE / "overlay-trial")
    return "overlayfs" if works else "native"


def _run(*command: str | Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **(environment or {})})


def import_image(archive: Path, name: str | None = None) -> None:
    """Import an image into containerd."""
    # Under the archive's own name, the index would lose its name to the image in it, and with it its content.
    naming = ("--index-name", name) if name and name not in _names_in(archive) else ()
    _run("ctr", "--address", STATE / "containerd.sock", "--namespace", "k8s.io", "images", "import", *naming, archive)


def _names_in(archive: Path) -> list[str]:
    """Read the image names in a Docker archive; an OCI archive does not have names here."""
    with tarfile.open(archive) as files:
        try:
            manifest = files.extractfile("manifest.json")
        except KeyError:
            return []
        images = json.load(manifest) if manifest is not None else []
    return [name for image in images for name in image.get("RepoTags") or ()]
