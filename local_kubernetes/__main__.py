"""The command line: `python -m local_kubernetes COMMAND`, from the root of the checkout."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import local_kubernetes
from local_kubernetes import binaries, checkout, choice, control_plane, doctor
from local_kubernetes.node_layout import DEVICES
from local_kubernetes.progress import LocalKubernetesError, tell

#: The builds that can be done ahead, by name.
_BUILDS = {
    "hyperkube": binaries.hyperkube,
    "azure-npm": binaries.azure_npm,
    "kwok": binaries.kwok,
    "kueue": binaries.kueue,
    "scheduler-plugins": binaries.scheduler_plugins,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: int(options.run(options) or 0))


def guarded(run: Callable[[], object]) -> int:
    """Run a command, and print the reason if it fails.

    Returns:
        The exit status.
    """
    # Some ways to become root drop these folders from PATH, and the network tools are there.
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
    try:
        status = run()
        return status if isinstance(status, int) else 0
    except LocalKubernetesError as error:
        tell(str(error))
    except subprocess.CalledProcessError as error:
        words = " ".join(map(str, error.cmd))
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr
        tell(f"`{words}` ended with status {error.returncode}\n{said or ''}")
    except OSError as error:
        tell(f"the machine refused: {error}")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_kubernetes", description=local_kubernetes.__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(run=run)
        return added

    command("up", _up, "raise or find a cluster; leaves .local/kubeconfig and .local/bin/{kubectl,helm}")
    command("down", _down, "remove the cluster and every trace of it")
    command("status", _status, "say in one line whether the cluster can be used")
    command("doctor", _doctor, "say for each thing the cluster needs whether this machine has it")
    load = command("load-image", _load_image, "make an OCI or Docker archive known to the nodes; prints its name")
    load.add_argument("archive", type=Path)
    load.add_argument("name", nargs="?", help="name for the image instead of the archive's own")
    device = command("device", _device, "make a fake GPU healthy or unhealthy")
    device.add_argument("health", choices=("healthy", "unhealthy"))
    device.add_argument("id", choices=DEVICES, metavar="ID", help=f"{DEVICES[0]} to {DEVICES[-1]}")
    policies = command("network-policies", _network_policies, "have the node enforce NetworkPolicies, or ignore them")
    policies.add_argument("action", choices=("enforce", "ignore"))
    command("packages", _packages, "install the Debian packages that the cluster or a test needs")
    command("tools", _tools, "put kubectl and helm into .local/bin, without a cluster")
    build = command("build", _build, "build programs ahead of their first use, which may have a limit of time")
    build.add_argument("programs", nargs="+", choices=sorted(_BUILDS), metavar="NAME", help=", ".join(sorted(_BUILDS)))
    plane = command("control-plane", _control_plane, "a control plane on loopback: no root, no real nodes")
    plane.add_argument("action", choices=("up", "down"))
    plane.add_argument("--state", type=Path, required=True, help="its folder; it holds `kubeconfig` and `audit.log`")
    plane.add_argument("--kwok-nodes", type=int, default=0, metavar="N", help="simulated nodes with 8 GPUs each")
    return parser


def _up(_: argparse.Namespace) -> None:
    cluster = choice.up()
    tell(f"{cluster.status()}; KUBECONFIG={checkout.KUBECONFIG}")


def _down(_: argparse.Namespace) -> None:
    choice.down()


def _status(_: argparse.Namespace) -> int:
    status = choice.chosen().status()
    print(status)
    return 0 if status.startswith("running") else 1


def _doctor(_: argparse.Namespace) -> int:
    name = choice.choose().name
    checks = list(doctor.current_checks()) if name == "current" else doctor.examine(node=name == "node")
    for check in checks:
        print(check)
    return 0 if all(check.present for check in checks) else 1


def _load_image(options: argparse.Namespace) -> None:
    print(choice.chosen().load_image(options.archive, options.name))


def _device(options: argparse.Namespace) -> None:
    choice.chosen().set_device(options.id, healthy=options.health == "healthy")


def _network_policies(options: argparse.Namespace) -> None:
    choice.chosen().set_network_policies(enforced=options.action == "enforce")


def _packages(_: argparse.Namespace) -> None:
    doctor.install_missing(node=choice.choose().name == "node", commands=doctor.test_commands())


def _tools(_: argparse.Namespace) -> None:
    checkout.link_tools()


def _build(options: argparse.Namespace) -> None:
    for program in options.programs:
        _BUILDS[program]()


def _control_plane(options: argparse.Namespace) -> None:
    if options.action == "down":
        control_plane.stop_state(options.state)
        return
    doctor.install_missing(node=False)
    checkout.link_tools()
    plane = control_plane.start_owned(options.state, kwok_nodes=options.kwok_nodes, owner="")
    tell(f"the control plane is up: KUBECONFIG={plane.kubeconfig}")


if __name__ == "__main__":
    sys.exit(main())
