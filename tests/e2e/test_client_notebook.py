"""The notebook of the examples, executed as by a user: it trains on real pods, and deletes everything."""

import json
from pathlib import Path

import nbformat
import pytest
import yaml
from live_world import TRAINING_DEADLINE_SECONDS, LiveWorld
from nbclient import NotebookClient
from support.objects import TFCLUSTERS

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"

pytestmark = pytest.mark.usefixtures("operator_release")


def test_notebook_is_stored_without_outputs():
    """The output of a run must not be committed."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]

    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.exhaustive
def test_notebook_trains(world: LiveWorld, kubeconfig: Path, training_image: str, tmp_path, monkeypatch):
    told = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for context in told["contexts"]:
        context["context"]["namespace"] = world.namespace
    own = tmp_path / "kubeconfig"
    own.write_text(yaml.safe_dump(told), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(own))
    monkeypatch.setenv("TRAINING_IMAGE", training_image)
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    NotebookClient(notebook, timeout=TRAINING_DEADLINE_SECONDS, kernel_name="python3").execute()

    printed = ["".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in notebook.cells]
    said = "\n".join(printed)
    assert "kind: TFCluster" in said
    assert "accuracy" in said
    assert "worker: from 1 to 2 tasks." in said
    assert "Ready restarts: 0" in said
    assert "worker-1 Ready notebook-worker-1" in said
    assert "cluster Created" in said
    assert world.get(TFCLUSTERS, "notebook") is None
    assert world.pods() == {}
