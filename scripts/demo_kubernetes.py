"""`make demo-kubernetes`: from nothing to a TensorFlow cluster that trains, resizes and recovers, with explanations."""

import json
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console

from scripts import images, set_up
from scripts.steps import StepError

_NAMESPACE: Final = "tfcluster-demo"
_NAME: Final = "digits"
_OPERATOR: Final = "system:serviceaccount:tfcluster-system:tfcluster-tfcluster-operator"
_KUBECTL: Final = (str(images.ROOT / ".local" / "bin" / "kubectl"), "--kubeconfig", ".local/kubeconfig")
#: Does not wrap or color the text by itself; on a terminal, headlines are highlighted.
_CONSOLE: Final = Console(highlight=False, markup=False, soft_wrap=True)
#: Reads the view in a pod until it shows an epoch, and prints when (seconds since 1970): the node uses this clock.
_AWAIT_EPOCH: Final = """
import json, os, time
path = os.path.join(os.environ.get("TFCLUSTER_DIR", "/etc/tfcluster"), "cluster.json")
end = time.time() + 60
while json.load(open(path))["epoch"] < {epoch} and time.time() < end:
    time.sleep(0.005)
print(time.time() if time.time() < end else 0)
"""


class DemoError(Exception):
    """A step did not finish; the message says which."""


def main() -> int:
    """Run the demo."""
    try:
        _set_up()
        _apply()
        _watch_training()
        _resize()
        _heal()
        _watch_training(after="healing")
        _say_goodbye()
    except StepError as error:
        print(f"\nThe set-up stopped: {error}\n", file=sys.stderr)
        return 1
    except DemoError as error:
        print(f"\nThe demo stopped: {error}\n", file=sys.stderr)
        _show_what_is_there()
        return 1
    except subprocess.CalledProcessError as error:
        print(f"\nThe demo stopped: {' '.join(map(str, error.cmd))} ended with {error.returncode}", file=sys.stderr)
        print(error.stderr or "", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nThe demo was interrupted: `make demo-kubernetes` goes on with what is made already.", file=sys.stderr)
        return 130
    return 0


def _set_up() -> None:
    _headline("A Kubernetes, the operator, and an image to train in")
    set_up.run(_CONSOLE)


def _apply() -> None:
    _headline("One manifest: a chief, two workers, a parameter server")
    if _kubectl("get", "namespace", _NAMESPACE, "--ignore-not-found", namespace=False):
        _kubectl("delete", "tfcluster", "--all", "--ignore-not-found")
        _await("the pods of the last demo are gone", lambda: not _items("pods"))
    else:
        _kubectl("create", "namespace", _NAMESPACE, namespace=False)
    # The strictest of the Pod Security Standards: TFClusters do not need more.
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    _kubectl("label", "namespace", _NAMESPACE, "--overwrite", restricted, namespace=False)
    # With OwnerReferencesPermissionEnforcement on, a server rejects owners of a kind that is new, for up to 10 s. The
    # operator would report this and retry; the demo waits, to avoid confusing output.
    _await("the API server lets a TFCluster own objects", _may_be_owned)
    example = "examples/parameter-server.yaml"
    manifest = images.with_loaded_names((images.ROOT / example).read_text(encoding="utf-8"))
    _show("apply", "-f", example, stdin=manifest)
    _await("every task is ready", lambda: _condition("Ready") == "True", patience=300)
    _show("get", "tfcluster,pods")


def _may_be_owned() -> bool:
    owner = {"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "name": _NAME, "uid": "none"}
    metadata = {"name": "trial", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    trial = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    command = [*_KUBECTL, "-n", _NAMESPACE, "create", f"--as={_OPERATOR}", "--dry-run=server", "-f", "-"]
    return subprocess.run(command, check=False, capture_output=True, text=True, input=json.dumps(trial)).returncode == 0


def _watch_training(*, after: str = "") -> None:
    if not after:
        _headline("The chief trains on scikit-learn's digits, across the pods")
    else:
        print(f"\nTraining after {after}:")
    with _log("chief-0") as lines:
        shown = 0
        for line in lines:
            if re.search(r"loss|accuracy", line):
                print(f"  {line}")
                shown += 1
            if shown == 3:
                return
    raise DemoError("the chief printed no progress")


def _resize() -> None:
    _headline("Scale the workers from two to four while it trains")
    epoch = _cluster()["status"]["epoch"]
    pods = [f"{_NAME}-chief-0", f"{_NAME}-ps-0"]
    watchers = {pod: _in_pod(pod, _AWAIT_EPOCH.format(epoch=epoch + 1)) for pod in pods}
    _await_listeners(watchers)
    started = time.time()
    _show("scale", f"tfcluster/{_NAME}", "--replicas=4")
    for pod, watcher in watchers.items():
        arrived = float((watcher.communicate(timeout=90)[0] or "0").strip().splitlines()[-1])
        if not arrived:
            raise DemoError(f"the new epoch did not arrive in {pod}")
        print(f"  {pod} reads the new epoch {arrived - started:.2f} s after `kubectl scale` was started")
    _await("the new workers are ready", lambda: _cluster()["status"].get("readyTasks") == 6, patience=180)
    _show("get", "tfcluster")


def _await_listeners(watchers: dict[str, subprocess.Popen[str]]) -> None:
    for pod, watcher in watchers.items():
        assert watcher.stdout is not None  # noqa: S101 - a pipe was asked for
        if watcher.stdout.readline().strip() != "listening":
            raise DemoError(f"could not look into {pod}")


def _heal() -> None:
    _headline("Delete a worker's pod")
    before = _address("worker-1")
    _show("delete", "pod", f"{_NAME}-worker-1", "--wait=false")
    old = _pod("worker-1")["metadata"]["uid"]
    _await("its successor is ready", lambda: _is_ready("worker-1", other_than=old), patience=180)
    print(f"  {_NAME}-worker-1 is back at {before}, with a new pod")
    if _address("worker-1") != before:
        raise DemoError(f"the address changed to {_address('worker-1')}")
    _show("get", "tfcluster,pods")
    _show("get", "events", "--field-selector", "involvedObject.kind=TFCluster", "--sort-by=.lastTimestamp")


def _say_goodbye() -> None:
    _headline("What to try next")
    print(
        textwrap.dedent(
            f"""\
            export KUBECONFIG=$PWD/.local/kubeconfig PATH=$PWD/.local/bin:$PATH
            kubectl -n {_NAMESPACE} logs -f {_NAME}-chief-0          # training goes on
            kubectl -n {_NAMESPACE} exec {_NAME}-chief-0 -- python3 -m tfcluster_resolver show
            kubectl -n {_NAMESPACE} scale tfcluster/{_NAME} --replicas=2
            kubectl -n {_NAMESPACE} patch tfcluster {_NAME} --type merge -p '{{"spec": {{"suspend": true}}}}'
            kubectl apply -f examples/gpu.yaml                        # simulated GPUs
            kubectl explain tfcluster.spec.jobs
            make docs-serve                                           # the docs, in a browser

            To clean up: kubectl delete namespace {_NAMESPACE}, or everything with `make cluster-down`.
            """
        )
    )


# --- looking


def _headline(text: str) -> None:
    _CONSOLE.print(f"\n== {text}\n", style="bold cyan")


def _kubectl(*arguments: str, namespace: bool = True, stdin: str | None = None) -> str:
    command = [*_KUBECTL, *(("-n", _NAMESPACE) if namespace else ()), *arguments]
    done = subprocess.run(command, check=True, cwd=images.ROOT, capture_output=True, text=True, input=stdin)
    return done.stdout


def _show(*arguments: str, stdin: str | None = None) -> None:
    """Show and run a command; with `stdin`, that text stands for the file which the command names last."""
    _CONSOLE.print(f"$ kubectl {' '.join(arguments)}", style="bold")
    run = arguments if stdin is None else (*arguments[:-1], "-")
    print(textwrap.indent(_kubectl(*run, stdin=stdin), "  "), end="", flush=True)


def _items(kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(_kubectl("get", kind, "-o", "json"))["items"]
    return items


def _cluster() -> dict[str, Any]:
    cluster: dict[str, Any] = json.loads(_kubectl("get", "tfcluster", _NAME, "-o", "json"))
    return cluster


def _condition(kind: str) -> str:
    conditions = _cluster().get("status", {}).get("conditions", [])
    return next((condition["status"] for condition in conditions if condition["type"] == kind), "Unknown")


def _pod(task: str) -> dict[str, Any]:
    pods = [pod for pod in _items("pods") if pod["metadata"]["name"] == f"{_NAME}-{task}"]
    return pods[0] if pods else {"metadata": {"uid": ""}, "status": {}}


def _is_ready(task: str, *, other_than: str) -> bool:
    pod = _pod(task)
    conditions = pod["status"].get("conditions", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and pod["metadata"]["uid"] != other_than


def _address(task: str) -> str:
    pod = _pod(task)
    environment = pod["spec"]["containers"][0]["env"]
    return next(str(entry["value"]) for entry in environment if entry["name"] == "TFCLUSTER_ADDRESS")


def _in_pod(pod: str, program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_KUBECTL, "-n", _NAMESPACE, "exec", pod, "--", "python3", "-c", f"print('listening', flush=True){program}"],
        cwd=images.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def _await(what: str, holds: Callable[[], bool], *, patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            raise DemoError(f"waited {patience:.0f} s and it is not so: {what}")
        time.sleep(0.2)


@contextmanager
def _log(task: str, *, patience: float = 300.0) -> Iterator[Iterator[str]]:
    """Follow new lines of a task's log; it ends after a number of seconds."""
    command = [*_KUBECTL, "-n", _NAMESPACE, "logs", "-f", "--since=1s", f"{_NAME}-{task}"]
    follow = subprocess.Popen(command, cwd=images.ROOT, stdout=subprocess.PIPE, text=True)
    clock = threading.Timer(patience, follow.kill)
    clock.start()
    try:
        assert follow.stdout is not None  # noqa: S101 - a pipe was asked for
        yield (line.rstrip() for line in follow.stdout)
    finally:
        clock.cancel()
        follow.kill()
        follow.wait()


def _show_what_is_there() -> None:
    for arguments in (
        ("get", "tfcluster,pods", "-o", "wide"),
        ("describe", "tfcluster", _NAME),
        ("logs", f"{_NAME}-chief-0", "--tail=20"),
    ):
        found = subprocess.run(
            [*_KUBECTL, "-n", _NAMESPACE, *arguments], check=False, cwd=images.ROOT, capture_output=True, text=True
        )
        print(found.stdout + found.stderr, file=sys.stderr)
    command = [*_KUBECTL, "-n", "tfcluster-system", "logs", "deploy/tfcluster-tfcluster-operator", "--tail=20"]
    subprocess.run(command, check=False, cwd=images.ROOT)


if __name__ == "__main__":
    sys.exit(main())
