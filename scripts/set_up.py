"""The set-up for `make demo-kubernetes`: `python -m scripts.set_up` runs all steps, or one step by its name.

Compiling Kubernetes takes longest; downloads, packages and images are built in parallel.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from rich.console import Console

import local_kubernetes.__main__ as cluster_command
from local_kubernetes import binaries, checkout, choice, doctor
from local_kubernetes.progress import LocalKubernetesError
from scripts import images, install
from scripts.steps import Run, Step, StepError, span


def steps(cluster: str) -> tuple[Step, ...]:
    """Return the steps, in an order that also works one by one."""
    before, ours = [], cluster != "current"
    if ours:
        before += [
            Step("packages", "Debian packages that this machine lacks"),
            Step("kubernetes", "Kubernetes, compiled"),
        ]
    before += [Step("tools", "kubectl and helm")]
    if cluster == "node":
        before += [Step("dns", "CoreDNS and the pause container, compiled", after=("kubernetes",))]
    return (
        *before,
        # Both build tools are Debian packages, and only one process can install packages at a time.
        Step("operator image", "the operator's image", after=("packages",) if ours else ()),
        Step("training image", "the image with TensorFlow", after=("operator image",)),
        Step("cluster", "a cluster", after=tuple(step.name for step in before)),
        Step("operator", "the operator, installed in it", after=("cluster", "operator image")),
        Step("training", "TensorFlow's image, loaded into it", after=("cluster", "training image")),
    )


def _install_packages() -> None:
    doctor.install_missing(node=choice.choose().name == "node")


def _link_tools() -> None:
    if choice.choose().name == "current":
        checkout.link_users_tools()
    else:
        checkout.link_tools()


def _compile_small_programs() -> None:
    binaries.coredns()
    binaries.pause()


_ACTIONS: Final[dict[str, Callable[[], object]]] = {
    "packages": _install_packages,
    "kubernetes": binaries.hyperkube,
    "tools": _link_tools,
    "dns": _compile_small_programs,
    "operator image": images.OPERATOR.archive,
    "training image": images.TRAINING.archive,
    "cluster": choice.up,
    "operator": install.main,
    "training": lambda: images.load(images.TRAINING),
}


def run(console: Console) -> None:
    """Run all steps that are not done.

    Raises:
        StepError: One has failed, or it is not clear which cluster to use.
    """
    began = time.monotonic()
    try:
        cluster = choice.choose().name
    except LocalKubernetesError as error:
        raise StepError(str(error)) from error
    todo = Run(
        steps(cluster),
        command=lambda step: (sys.executable, "-m", "scripts.set_up", step.name),
        logs=checkout.LOCAL / "set-up",
        console=console,
    )
    todo.go()
    took = span(time.monotonic() - began)
    console.print(f"\n  All of it took {took}, on {os.cpu_count()} processors; CPU {span(todo.cpu)}.", highlight=False)


def main(arguments: list[str]) -> int:
    """Run one step, or all of them.

    Returns:
        The process's exit code.
    """
    if arguments:
        return cluster_command.guarded(_ACTIONS[arguments[0]])
    try:
        run(Console())
    except StepError as error:
        images.tell(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
