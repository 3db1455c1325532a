"""``doctor``: what a task needs, check by check, with a verdict and what to do.

A check takes bounded time, and raises only AddressError, for an address that is not "host:port".
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tfcluster_resolver import __version__, contract, copies, errors
from tfcluster_resolver._arguments import first_of
from tfcluster_resolver.accelerators import visible_accelerators
from tfcluster_resolver.cluster import Membership, Task, device_counts, own_task
from tfcluster_resolver.commands import command
from tfcluster_resolver.views.file import DATA, ViewFile
from tfcluster_resolver.waiting import port_state, speaks_grpc, wait_for_tasks
from tfcluster_resolver.waiting.addresses import addresses_of, host_and_port

Verdict = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check, and what to do (empty if nothing is wrong)."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


#: Seconds that a name's look-up gets at least: a live DNS server answers in milliseconds.
_LOOK_UP: Final = 3.0


def package(search_path: Sequence[str]) -> Check:
    """Compare the copy of this package that runs with the others on the search path."""
    here = str(Path(__file__).parent.parent)
    found = copies.copies(search_path)
    others = [f"{one.version} in {Path(one.file).parent}" for one in found if str(Path(one.file).parent) != here]
    message = f"tfcluster_resolver {__version__} in {here}"
    best, mine = copies.newest(found), copies.order_of(__version__)
    if best is not None and mine is not None and best.order > mine:
        message += f" hides the newer {best.version} in {Path(best.file).parent}"
        return Check("package", "warning", message, "Take the older one off PYTHONPATH, or out of the image")
    return Check("package", "ok", message + (f"; not taken: {', '.join(others)}" if others else ""))


def task(own: Task | None) -> Check:
    if own is not None:
        return Check("task", "ok", f"{own} at {own.address}")
    remedy = "Run this in one of the TFCluster's pods to check that pod"
    return Check("task", "warning", "this process is not a task of a TFCluster", remedy)


def view(membership: Membership, path: Path, directory: str) -> Check:
    """Check whether the view is this task's, and whether it will change when the cluster does."""
    found, own = membership.view, membership.own
    age = max(0, int(time.time() - path.stat().st_mtime))
    message = f"{found.namespace}/{found.name}, epoch {found.epoch}, in {path}, written {age} s ago"
    if own is not None:
        known = found.jobs.get(own.job, ())
        listed = dict(enumerate(known)) if isinstance(known, Sequence) else dict(known)
        address = listed.get(own.index, own.address)
        if address != own.address:
            return Check(
                "view",
                "failed",
                f"{message}: it has {own} at {address}, and this pod was created for {own.address}",
                "The view or the environment is another cluster's: delete the pod, and the operator creates it again",
            )
        if isinstance(known, Sequence) and known and own.index >= len(known):
            return Check(
                "view",
                "warning",
                f"{message}: it ends at /job:{own.job}/task:{len(known) - 1}, before this task",
                "The job was scaled down and this pod is about to go; otherwise look at the operator's log",
            )
    if not os.path.islink(os.path.join(directory, DATA)):  # noqa: PTH114, PTH118 - a path as it was given
        message += ": it is not a mounted ConfigMap, so it never changes"
        return Check("view", "warning", message, f"Mount the whole ConfigMap at {directory}, never with subPath")
    return Check("view", "ok", message)


def tf_config(membership: Membership, environ: Mapping[str, str]) -> Check | None:
    """Compare the TF_CONFIG of the environment with the view; None if it is not set."""
    text, own, name = environ.get(contract.ENV_TF_CONFIG), membership.own, contract.ENV_TF_CONFIG
    if text is None or own is None:
        return None
    now = json.loads(contract.tf_config(membership.view, job=own.job, index=own.index, address=own.address))
    try:
        then = json.loads(text)
    except ValueError as error:
        return Check(name, "warning", f"it is not JSON: {error}", "Look at the env of this container in the pod")
    named = then.get("task") if isinstance(then, dict) else None
    lacks, more = _tasks_of(now) - _tasks_of(then), _tasks_of(then) - _tasks_of(now)
    wrong = [
        *([f"it is for {json.dumps(named)}, and this is {own}"] if named != now["task"] else ()),
        *([f"it lacks {first_of(sorted(lacks), 3)}"] if lacks else ()),
        *([f"it has {first_of(sorted(more), 3)}, which the view lacks"] if more else ()),
    ]
    if not wrong:
        return Check(name, "ok", "it says what the view says")
    return Check(
        name,
        "warning",
        "; ".join(wrong),
        "It was set when the pod was created: to follow a resize, restart the tasks or read the cluster through the "
        "resolver",
    )


def own_name(own: Task, service: str, timeout: float) -> Check:
    """Check whether the name that the others use for this task leads here."""
    name = "own name"
    host, _ = host_and_port(own.address)
    timeout = max(timeout, _LOOK_UP)
    addresses = addresses_of(host, timeout)
    if not addresses:
        slow = f"looking up {host} takes over {timeout:g} s"
        remedy = f"Is there a headless Service {service}, and does the cluster's DNS answer?"
        return Check(name, "failed", slow if addresses is None else f"{host} does not resolve", remedy)
    foreign = [address for address in addresses if not _is_here(address)]
    if foreign:
        return Check(
            name,
            "failed",
            f"{host} leads to {', '.join(foreign)}, which is not this pod",
            "Another pod has the name, or a DNS cache is older than this pod: wait for its time to live, then look for "
            "a second pod with this hostname and subdomain",
        )
    return Check(name, "ok", f"{host} is {', '.join(addresses)}, which is this pod")


def own_port(own: Task) -> Check:
    """Check whether this task's port is free, or a gRPC server's as TensorFlow's is."""
    name = "own port"
    _, port = host_and_port(own.address)
    state = port_state(port)
    if state == "forbidden":
        remedy = "Set a port above 1023 in the TFCluster"
        return Check(name, "failed", f"this user cannot listen on port {port}", remedy)
    if state == "free":
        return Check(name, "ok", f"port {port} is free: no server of this task runs yet")
    if speaks_grpc(port):
        return Check(name, "ok", f"port {port} is answered by a gRPC server, as TensorFlow's is")
    message = f"port {port} is taken by a program that does not answer as TensorFlow's server does"
    return Check(name, "failed", message, "Set another port in the TFCluster, or move that program")


def peers(membership: Membership, timeout: float) -> Iterator[Check]:
    """Check which other tasks accept a connection, and why not."""
    own = membership.own
    others = [each for each in membership.tasks() if own is None or each[:2] != own[:2]]
    if not others:
        yield Check("peers", "skipped", "this task does not see another one")
        return
    missing = wait_for_tasks(others, timeout=timeout)
    message = f"{len(others) - len(missing)} of {len(others)} other tasks accept connections"
    yield Check("peers", "failed" if missing else "ok", message)
    for one in missing:
        host, namespace = host_and_port(one.address)[0], membership.view.namespace
        pod = host.partition(".")[0]
        remedy = f"`kubectl -n {namespace} describe pod {pod}` and `kubectl -n {namespace} logs {pod}` tell more"
        if ":" in host or pod.isdigit():  # `tfcluster local run` has IP addresses, not pods
            remedy = "Look at the log of that task"
        yield Check(f"peer /job:{one.job}/task:{one.index}", "failed", f"{one.address}: {one.cause.value}", remedy)


def accelerators(membership: Membership, own: Task) -> Check:
    """Compare the devices that the device plugin granted with those in this container."""
    visible, name = visible_accelerators(), "accelerators"
    if visible is None:
        return Check(name, "skipped", "the devices of this container cannot be counted")
    requested = device_counts(membership.view.accelerators.get(own.job, contract.JobAccelerators()).limits)
    healthy = membership.device_counts(own.job, own.index)
    message = f"requested {_spell(requested)}, healthy {_spell(healthy)}, visible {_spell(visible)}"
    remedy = ""
    if _lacks(healthy, requested):
        remedy = "A granted device is unhealthy: look at the node's device plugin; deleting the pod gets another device"
    elif _lacks(visible, healthy):
        remedy = (
            "Something hides granted devices: look at CUDA_VISIBLE_DEVICES, and whether this container has the limit"
        )
    elif _lacks(healthy, visible):
        remedy = (
            "The container shows devices that it was not granted: ask for them in its limits, or set "
            "NVIDIA_VISIBLE_DEVICES=void"
        )
        remedy += "" if requested else ". Until then they count, as a DRA claim's or a shared GPU's would"
    return Check(name, "warning" if remedy else "ok", message, remedy)


def _tasks_of(config: Any) -> set[str]:
    cluster = config.get("cluster") if isinstance(config, dict) else None
    found = set()
    for job, tasks in cluster.items() if isinstance(cluster, dict) else ():
        listed = enumerate(tasks) if isinstance(tasks, list) else tasks.items() if isinstance(tasks, dict) else ()
        found |= {f"/job:{job}/task:{index} at {address}" for index, address in listed}
    return found


def _lacks(there: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return any(there.get(device, 0) < count for device, count in wanted.items())


def _spell(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {device}" for device, count in sorted(counts.items())) or "none"


def _is_here(address: str) -> bool:
    """Return whether an IP address is one of this machine's: only those can be bound."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


#: The names of the checks of a cluster, to skip them without a view.
_OF_A_VIEW: Final = ("view", "own name", "own port", "peers", "accelerators")


def diagnose(directory: str, timeout: float) -> Iterator[Check]:
    """Check what this task needs; skip checks that cannot work after another's failure."""
    yield package(sys.path)
    try:
        own = own_task(os.environ)
    except errors.TaskIdentityError as error:
        yield Check("task", "failed", str(error), "Look at the env of this container in the pod")
        yield from (Check(name, "skipped", "it is not known which task this is") for name in _OF_A_VIEW)
        return
    yield task(own)
    try:
        read, path = ViewFile(directory, own.index if own is not None else None).read()
    except errors.ViewError as error:
        remedy = f"Is the volume of {contract.DEFAULT_DIRECTORY} mounted in this container?"
        yield Check("view", "failed", str(error), remedy)
        yield from (Check(name, "skipped", "the view is missing") for name in _OF_A_VIEW[1:])
        return
    membership = Membership(view=read, own=own)
    yield view(membership, path, directory)
    if (compared := tf_config(membership, os.environ)) is not None:
        yield compared
    checks: dict[str, Callable[[], Iterable[Check] | None]] = {
        "own name": lambda: own and [own_name(own, read.name, timeout)],
        "own port": lambda: own and [own_port(own)],
        "peers": lambda: peers(membership, timeout),
        "accelerators": lambda: own and [accelerators(membership, own)],
    }
    for name, check in checks.items():
        try:
            yield from check() or [Check(name, "skipped", "this process is not a task of the cluster")]
        except errors.AddressError as error:
            yield Check(name, "failed", str(error), "The operator writes addresses: who else edits this?")


def _run(options: argparse.Namespace) -> int:
    found = list(diagnose(options.directory, options.timeout))
    verdicts = {check.verdict for check in found}
    worst: Verdict = "failed" if "failed" in verdicts else "warning" if "warning" in verdicts else "ok"
    if options.json:
        command.say(json.dumps({"verdict": worst, "checks": [asdict(check) for check in found]}, indent=2))
    else:
        width = max(len(check.name) for check in found)
        for check in found:
            remedy = f". {check.remedy}" if check.remedy else ""
            command.say(f"{check.verdict:8} {check.name:{width}}  {check.message}{remedy}")
    return command.CHECK_FAILED if worst == "failed" else command.DONE


DOCTOR: Final = command.Command(
    brief="check what a task needs, and say what to do",
    description="Check the package, the view, the own name and port, the other tasks and the accelerators: "
    "one line each with a verdict (ok, warning, failed, skipped) and what to do.",
    codes=(command.CHECK_FAILED,),
    success="no check failed; warnings are possible",
    options=command.JSON | command.timeout(5.0, "how long the other tasks may take to accept a connection"),
    run=_run,
)
