"""A control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with all files in one folder.

On loopback it does not need root or a node, and any number of them run side by side; node.py starts the same one
inside the node's namespaces. It never changes anything outside its state folder.
"""

import base64
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from local_kubernetes import binaries, components, processes
from local_kubernetes.api_client import ApiClient
from local_kubernetes.cache import content_hash
from local_kubernetes.certificates import Authority, Certificate
from local_kubernetes.components import Addresses, Gangs
from local_kubernetes.kubeconfig import write_kubeconfig
from local_kubernetes.ports import loopback_addresses
from local_kubernetes.progress import LocalKubernetesError

MINOR_VARIABLE = "TFCLUSTER_KUBERNETES_MINOR"
"""Names the older minor, such as 1.34, that control planes on loopback run; unset: that of hyperkube."""

TRIES = 3
"""Starts to try when another program has taken a port between our choice and our use of it."""

STATE_ENTRIES = ("apiserver", "audit-policy.json", "audit.log", "etcd", "kubeconfig", "kubeconfigs", "log", "pki")
"""Everything a control plane leaves in its state folder."""


class PortTakenError(LocalKubernetesError):
    """A chosen port was taken in the meantime."""


class ControlPlane:
    """A started control plane; also a context manager that stops it.

    Args:
        state: Its folder.
        addresses: Its addresses.
        enter: A command that runs its arguments inside the namespaces of the programs.
        owner: See processes.Program.
        minor: An older minor for its programs; empty: hyperkube's. etcd is hyperkube's in any case.
        node_grace: Seconds without a heartbeat until a node is no longer Ready.
        gangs: Whether to enable PodGroups (scheduling.k8s.io/v1beta1), which Kubernetes disables by default.
    """

    def __init__(
        self,
        state: Path,
        addresses: Addresses,
        *,
        enter: Sequence[str] = (),
        owner: str = "",
        minor: str = "",
        node_grace: int = 50,
        gangs: Gangs = False,
    ) -> None:
        self.state = state
        self.kubeconfig = state / "kubeconfig"
        """The administrator's."""
        self.audit_log = state / "audit.log"
        """One JSON object a line for every request, at level Metadata."""
        self.authority = Authority(state / "pki")
        self.addresses = addresses
        self._enter = enter
        self._owner = owner
        self._minor = minor
        self._node_grace = node_grace
        self.gangs = gangs
        """What the programs are started with from now on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def api(self) -> ApiClient:
        """A client with all permissions."""
        admin = Certificate(self.state / "pki" / "admin.crt", self.state / "pki" / "admin.key")
        return ApiClient(
            self.addresses.host, self.addresses.api_port, authority=self.authority.certificate, client=admin
        )

    def launch(self, prepare: Callable[["ControlPlane"], object] | None = None) -> None:
        """Start everything and wait until namespace `default` can hold pods."""
        self.launch_server()
        if prepare is not None:
            prepare(self)
        self.launch_controllers()
        # The controller manager creates it; before that every pod is rejected.
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        self.api.wait_for(path, what="the default service account", alive=self.check_alive)

    def launch_server(self) -> None:
        """Start etcd and the API server and wait until the server answers."""
        self._write_files()
        self._start_server("the API server")

    def launch_controllers(self) -> None:
        """Start the programs that act on the objects of the API server."""
        command = components.controller_manager_command(
            self._programs(), self.state, node_grace=self._node_grace, gangs=self.gangs
        )
        self._run("kube-controller-manager", command)
        self._run("kube-scheduler", components.scheduler_command(self._programs(), self.state, gangs=self.gangs))

    def kubeconfig_for(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Create credentials for a user who has only the permissions of RBAC."""
        name = f"user-{content_hash(user, *groups)}"  # a user's name may hold any character
        client = self.authority.issue(name, user, groups=groups)
        path = self.state / "kubeconfigs" / name
        return write_kubeconfig(path, server=self.api.server, authority=self.authority.certificate, client=client)

    def restart_apiserver(self) -> None:
        """Kill the API server and start it again on its port: watches break, and its caches are empty."""
        processes.stop(p for p in processes.running(self.state) if p.name == "kube-apiserver")
        self._run_api_server()
        self.api.wait_for("/readyz", what="the API server after its restart", alive=self.check_alive)

    def restart_controllers(self) -> None:
        """Kill the controllers and the scheduler and start them again: they read their caches again."""
        names = {"kube-controller-manager", "kube-scheduler"}
        processes.stop(p for p in processes.running(self.state) if p.name in names)
        self.launch_controllers()

    def restart_server(self, meanwhile: Callable[[Path], object]) -> None:
        """Stop etcd and the API server, and start both again: to back up or restore etcd."""
        processes.stop(p for p in processes.running(self.state) if p.name in {"etcd", "kube-apiserver"})
        meanwhile(self.state / "etcd")
        self._start_server("the API server after etcd's restart")

    def compact_etcd(self) -> None:
        """Forget all past revisions, so that older resource versions get 410 Gone once the API server asks etcd.

        Its own cache still answers for them: a restart_apiserver() afterwards empties that.
        """
        everything = base64.b64encode(b"\0").decode()  # from the first key on
        header = self._etcd("kv/range", {"key": everything, "limit": "1"})["header"]
        self._etcd("kv/compaction", {"revision": header["revision"], "physical": True})

    def stop(self) -> None:
        """Stop all programs and delete the data; the audit log and the programs' logs are kept."""
        # Killed, because the shutdown of a server whose etcd is dead takes a minute.
        processes.stop(processes.running(self.state))
        shutil.rmtree(self.state / "etcd", ignore_errors=True)

    def check_alive(self) -> None:
        """Raise an exception if a started program has died."""
        check_alive(self.state)

    def _write_files(self) -> None:
        remove_state(self.state)
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "audit-policy.json").write_text(json.dumps(components.AUDIT_POLICY))
        authority, addresses = self.authority, self.addresses
        authority.create()
        authority.issue("apiserver", "kube-apiserver", alternative_names=addresses.names)
        authority.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", groups=("system:masters",))
        admin = authority.issue("admin", "admin", groups=("system:masters",))
        server = f"https://{addresses.host}:{addresses.api_port}"
        write_kubeconfig(self.kubeconfig, server=server, authority=authority.certificate, client=admin)
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.write_component_kubeconfig(name, f"system:{name}")

    def write_component_kubeconfig(
        self, name: str, user: str, *, groups: tuple[str, ...] = (), alternative_names: tuple[str, ...] = ()
    ) -> Path:
        """Make credentials for a program that runs beside the API server.

        Returns:
            The kubeconfig; it uses the loopback address that is always in the server's certificate.
        """
        client = self.authority.issue(name, user, groups=groups, alternative_names=alternative_names)
        server = f"https://127.0.0.1:{self.addresses.api_port}"
        path = self.state / "kubeconfigs" / name
        return write_kubeconfig(path, server=server, authority=self.authority.certificate, client=client)

    def _start_server(self, what: str) -> None:
        self._run("etcd", components.etcd_command(binaries.hyperkube(), self.state, self.addresses))
        self._run_api_server()
        self.api.wait_for("/readyz", what=what, alive=self.check_alive)

    def _run_api_server(self) -> None:
        command = components.apiserver_command(self._programs(), self.state, self.addresses, gangs=self.gangs)
        self._run("kube-apiserver", command)

    def _run(self, name: str, arguments: Sequence[str | Path]) -> None:
        processes.launch(arguments, name=name, state=self.state, enter=self._enter, owner=self._owner)

    def _programs(self) -> Path:
        return binaries.older_control_plane(self._minor) if self._minor else binaries.hyperkube()

    def _etcd(self, call: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.addresses.etcd_port}/v3/{call}", data=json.dumps(body).encode(), method="POST"
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
        with opener.open(request, timeout=30) as answer:
            return dict(json.load(answer))


def start(
    state: Path, *, kwok_nodes: int = 0, gangs: Gangs = False, prepare: Callable[[ControlPlane], object] | None = None
) -> ControlPlane:
    """Start a control plane on loopback, of $TFCLUSTER_KUBERNETES_MINOR, that ends with this process at the latest.

    Args:
        state: Its folder; what an earlier control plane left there is removed.
        kwok_nodes: Number of simulated nodes, each with 8 GPUs, whose pods become Running and Ready.
        gangs: As for ControlPlane.
        prepare: Called when the API server answers, before the controllers start: they look for new kinds rarely.

    Returns:
        The control plane; namespace `default` has its service account, and the nodes are Ready.

    Raises:
        LocalKubernetesError: It does not start.
    """
    owner = processes.identity(os.getpid())
    return start_owned(state, kwok_nodes=kwok_nodes, gangs=gangs, owner=owner, prepare=prepare)


def start_owned(
    state: Path,
    *,
    kwok_nodes: int,
    owner: str,
    gangs: Gangs = False,
    prepare: Callable[[ControlPlane], object] | None = None,
) -> ControlPlane:
    """Start a control plane on loopback."""
    from local_kubernetes import kwok  # noqa: PLC0415 - kwok.py is about a ControlPlane

    state = state.absolute()
    stop_orphans()
    for attempt in range(1, TRIES + 1):
        minor = os.environ.get(MINOR_VARIABLE, "")
        # While thousands of pods are simulated, the heartbeats of the nodes come minutes late.
        grace = 600 if kwok_nodes else 50
        plane = ControlPlane(state, loopback_addresses(), owner=owner, minor=minor, node_grace=grace, gangs=gangs)
        try:
            plane.launch(prepare)
            if kwok_nodes:
                kwok.simulate_nodes(plane, kwok_nodes, owner=owner)
        except PortTakenError:
            plane.stop()
            if attempt == TRIES:
                raise
        except BaseException:
            plane.stop()
            raise
        else:
            break
    return plane


def check_alive(state: Path) -> None:
    """Raise if one of the programs that were started in a state folder has died.

    Raises:
        PortTakenError: It died because another program listens on its port.
        LocalKubernetesError: It died of something else; the end of its log is in the message.
    """
    dead = processes.dead(state)
    if dead:
        time.sleep(0.2)  # during exec a process briefly does not have an environment, and so no mark
    for log in dead & processes.dead(state):
        text = log.read_text(errors="replace")
        kind = PortTakenError if "address already in use" in text else LocalKubernetesError
        raise kind(f"{log.stem} has died; the end of {log}:\n{text[-2000:]}")


def stop_state(state: Path) -> None:
    """Stop the control plane of a folder and remove its files."""
    processes.stop(processes.running(state.absolute()))
    remove_state(state.absolute())


def remove_state(state: Path) -> None:
    """Remove a control plane's files, after stopping programs that still run."""
    processes.stop(processes.running(state))
    for entry in STATE_ENTRIES:
        path = state / entry
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if state.is_dir() and not any(state.iterdir()):
        state.rmdir()


def stop_orphans() -> None:
    """Stop the control planes whose owners have died: tests that were killed."""
    processes.stop(
        program
        for program in processes.running()
        if program.owner and processes.identity(int(program.owner.partition(":")[0])) != program.owner
    )
