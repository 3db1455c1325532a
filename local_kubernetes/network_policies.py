"""NetworkPolicies on the one-node cluster, which are not enforced by default.

Azure's Network Policy Manager then writes iptables chains and IP sets into the node's network namespace only. They
filter forwarded packets, so pods are isolated from each other and from the machine, but never from the node's own
kubelet and its probes.
"""

import subprocess
import time

from local_kubernetes import binaries, node, node_layout, processes
from local_kubernetes.api_client import POLL_SECONDS
from local_kubernetes.cache import locked
from local_kubernetes.doctor import install_missing
from local_kubernetes.node_files import NODE_NAME
from local_kubernetes.node_layout import LOCK, STATE
from local_kubernetes.progress import LocalKubernetesError

PROGRAM = "azure-npm"
CHAIN = "AZURE-NPM"
"""What forwarded packets are sent through; the names of the other chains begin with it."""

SECONDS_TO_START = 30


def enforce() -> None:
    """Have the node enforce every NetworkPolicy from now on, those that exist and those that come.

    Raises:
        LocalKubernetesError: The node does not run, the machine lacks something, or the program does not start.
    """
    with locked(LOCK):
        if trouble := node.whats_wrong():
            raise LocalKubernetesError(f"there is no node that could enforce network policies: {trouble}")
        if _running():
            return
        install_missing(node=True)
        program = binaries.azure_npm()
        kubeconfig = node_layout.plane().write_component_kubeconfig(PROGRAM, PROGRAM, groups=("system:masters",))
        arguments = (program, f"--kubeconfig={kubeconfig}", f"--node={NODE_NAME}")
        processes.launch(arguments, name=PROGRAM, state=STATE, enter=_enter())
        deadline = time.monotonic() + SECONDS_TO_START
        while CHAIN not in _in_node("iptables", "-w", "-S", "FORWARD"):
            if time.monotonic() > deadline:
                raise LocalKubernetesError(f"{PROGRAM} did not start: see {STATE / 'log' / PROGRAM}.log")
            time.sleep(POLL_SECONDS)


def ignore() -> None:
    """Stop the enforcement on the node, and remove all rules, however the program ended."""
    with locked(LOCK):
        if node_layout.first_process() is None:
            return  # the rules were deleted with its network
        processes.stop(_running())
        rules = _in_node("iptables", "-w", "-S").splitlines()
        jumps = [rule.replace("-A", "-D", 1) for rule in rules if rule.startswith("-A FORWARD ") and CHAIN in rule]
        chains = [rule.split()[1] for rule in rules if rule.startswith(f"-N {CHAIN}")]
        # Atomic, so that packets do not meet half of the rules.
        lines = [
            "*filter",
            *jumps,
            *(f"-F {chain}" for chain in chains),
            *(f"-X {chain}" for chain in chains),
            "COMMIT",
        ]
        _in_node("iptables-restore", "-w", "--noflush", stdin="\n".join(lines) + "\n")
        # All sets of this namespace belong to the program: kube-proxy does not use sets in its iptables mode.
        _in_node("ipset", "flush")
        _in_node("ipset", "destroy")


def _running() -> list[processes.Program]:
    return [program for program in processes.running(STATE) if program.name == PROGRAM]


def _enter() -> tuple[str, ...]:
    first = node_layout.first_process()
    if first is None:
        raise LocalKubernetesError("the node has ended")
    return node_layout.enter(first)


def _in_node(*command: str, stdin: str = "") -> str:
    return subprocess.run([*_enter(), *command], input=stdin, check=True, capture_output=True, text=True).stdout
