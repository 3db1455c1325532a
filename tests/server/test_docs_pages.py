"""The pages of the docs on a real API server: manifests are applied, commands print what their page shows.

A simulated kubelet runs the pods. A fence that needs real pods names its end-to-end test (``e2e=TEST``), one that needs
a server with other features a test on a server (``server=TEST``); Python and the commands of ``as=chief`` run in
tests/tensorflow. ``exit=N`` is the exit status of a fence's commands.
"""

import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from support.guide import Snippet, agrees, snippets
from support.objects import PODS, Object, Objects
from support.pods import StandInKubelet
from support.waiting import GUARD, eventually
from support.world import World, task_names

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = sorted({*(ROOT / "docs" / "how-to").glob("*.md")} - {ROOT / "docs" / "how-to" / "write-a-program.md"})
PAGES = [ROOT / "docs" / "index.md", ROOT / "docs" / "get-started" / "examples.md", *HOW_TO]
MANIFESTS = [
    (page, snippet)
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if "kind: TFCluster" in page.read_text(encoding="utf-8")
    for snippet in snippets(page)
    if snippet.language == "yaml" and "kind: TFCluster" in snippet.text
]


class Node(threading.Thread):
    """A node that runs every pod of a namespace, until the namespace is deleted."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        super().__init__(daemon=True)
        self._objects, self._namespace = objects, namespace
        self._kubelet = StandInKubelet(objects, namespace)
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            for pod in self._objects.list(PODS, self._namespace):
                self._serve(pod["metadata"]["name"], pod["metadata"], pod.get("status", {}).get("phase"))

    def _serve(self, name: str, metadata: dict[str, object], phase: str | None) -> None:
        try:
            if "deletionTimestamp" in metadata:
                self._kubelet.stop(name)
            elif phase == "Pending":
                self._kubelet.run(name)
        except (ApiException, AssertionError):  # it was deleted in the meantime
            return

    def close(self) -> None:
        self._over.set()
        self.join()
        self._kubelet.close()


@pytest.fixture
def node(objects: Objects, namespace: str) -> Iterator[Node]:
    playing = Node(objects, namespace)
    playing.start()
    yield playing
    playing.close()


def test_every_fence_is_run_somewhere() -> None:
    tests = {
        folder: "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / folder).glob("test_*.py"))
        for folder in ("e2e", "server", "sharing")
    }
    places = {"console": r"|exit=\d+|as=chief", "yaml": r'|title="[\w.-]+"', "python": "|as=chief"}
    for page in PAGES:
        for snippet in snippets(page):
            proofs = {folder: test for folder in tests if (test := snippet.proof(folder))}
            for folder, test in proofs.items():
                assert f"\ndef {test}(" in tests[folder], f"{snippet}"
            if not proofs:
                assert re.fullmatch(places[snippet.language], snippet.place), f"{snippet}"


@pytest.mark.usefixtures("operator", "node")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_can_be_followed(page: Path, kubectl: Callable, namespace: str, tmp_path: Path) -> None:
    for snippet in snippets(page):
        if title := re.fullmatch(r'title="(.+)"', snippet.place):
            (tmp_path / title[1]).write_text(snippet.text, encoding="utf-8")
        elif snippet.language == "console" and "=" not in snippet.place.replace("exit=", ""):
            follow(snippet, lambda *words: kubectl("-n", namespace, *words), tmp_path)


def follow(snippet: Snippet, kubectl: Callable, folder: Path) -> None:
    status = int(snippet.place.removeprefix("exit=") or 0)
    for command, told in snippet.commands():
        program, *words = shlex.split(command)
        assert program == "kubectl", f"{snippet}: {command}"
        done = kubectl(*(str(place(word, folder)) if word.endswith(".yaml") else word for word in words))
        shown = (done.stderr if status else done.stdout).splitlines()
        assert done.returncode == status, f"{snippet}: {command}\n{done.stdout}{done.stderr}"
        assert not told or agrees(shown, told), f"{snippet}: {command}\n{done.stdout}{done.stderr}"


def place(name: str, folder: Path) -> Path:
    return ROOT / name if name.startswith("examples/") else folder / name


@pytest.mark.parametrize(("page", "snippet"), MANIFESTS, ids=[str(one) for _, one in MANIFESTS])
def test_manifest_of_the_docs_is_admitted(page: Path, snippet: Snippet, kubectl: Callable, namespace: str) -> None:
    for text in manifests_in(snippet.text):
        asked = kubectl("-n", namespace, "create", "--dry-run=server", "-f", "-", stdin=text)
        assert (asked.returncode, asked.stderr) == (0, ""), page


def manifests_in(text: str) -> list[str]:
    """Return the manifests of a fence, or those of the TFClusters in a pipeline's."""
    if re.search("^kind: TFCluster$", text, re.MULTILINE):
        return [text]
    spec = yaml.safe_load(text)["spec"]
    if trial := spec.get("trialTemplate"):
        return [yaml.safe_dump({**trial["trialSpec"], "metadata": {"generateName": "trial-"}})]
    return [template["resource"]["manifest"] for template in spec["templates"]]


@pytest.mark.usefixtures("operator")
def test_pipeline_step_trains(
    world: World, kubelet: StandInKubelet, control_plane: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The body of the component; its decorator only packs it for another machine."""
    (step,) = (one for page in HOW_TO for one in snippets(page) if one.proof("server") == "test_pipeline_step_trains")
    config = yaml.safe_load(control_plane.kubeconfig.read_text(encoding="utf-8"))
    config["contexts"][0]["context"]["namespace"] = world.namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    undecorated = SimpleNamespace(component=lambda **_: lambda function: function)
    monkeypatch.setitem(sys.modules, "kfp", SimpleNamespace(dsl=undecorated))
    names: dict[str, Any] = {}
    exec(compile(step.text, str(step), "exec"), names)  # noqa: S102 - a snippet of the docs

    with ThreadPoolExecutor() as pool:
        done = pool.submit(names["train"], "mnist", "image:1", 2)
        pods = world.await_pods(task_names("mnist", chief=1, ps=1, worker=2))
        kubelet.run(*pods)
        kubelet.succeed("mnist-chief-0")
        done.result(timeout=GUARD)
    world.await_removed("mnist")


# --- the examples

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.usefixtures("operator")
def test_every_example_is_admitted_under_pod_security_restricted(kubectl: Callable, world: World) -> None:
    marks = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    labelled = kubectl("label", "namespace", world.namespace, *marks)
    assert labelled.returncode == 0, labelled.stderr
    expected = set()
    for example in EXAMPLES:
        applied = kubectl("-n", world.namespace, "apply", "-f", str(example))
        assert (applied.returncode, applied.stderr) == (0, ""), example.name
        expected |= {task for one in yaml.safe_load_all(example.read_text(encoding="utf-8")) for task in tasks(one)}
    assert len(EXAMPLES) == 11
    # An autoscaler can add to them.
    eventually(lambda: world.pods().keys(), lambda names: names >= expected, what="every task has its pod")


def tasks(manifest: Object) -> Iterator[str]:
    if manifest["kind"] == "TFCluster":
        for job, declared in manifest["spec"]["jobs"].items():
            for index in range(declared.get("replicas", 1)):
                yield f"{manifest['metadata']['name']}-{job}-{index}"
