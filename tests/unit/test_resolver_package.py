"""The package as a whole: what importing it loads, what it shows, what its commands print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tfcluster_resolver
from tfcluster_resolver import contract, errors
from tfcluster_resolver.__main__ import main

ROOT = Path(__file__).resolve().parent.parent.parent
GPU = "nvidia.com/gpu"
VIEW = contract.View(
    name="c",
    namespace="n",
    uid="u",
    epoch=4,
    rpc_layer="grpc",
    jobs={"chief": ("c0:1",), "worker": ("w0:1", "w1:1")},
    device_filters={"worker": (contract.FilterRange(0, 4, ("/job:chief", "/job:ps")),)},
    accelerators={"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 1}})},
)


@pytest.fixture
def in_pod(tmp_path, monkeypatch):
    """This process is the pod of worker 1."""
    (tmp_path / "cluster.json").write_text(contract.dump(VIEW))
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(tmp_path))
    monkeypatch.setenv(contract.ENV_JOB, "worker")
    monkeypatch.setenv(contract.ENV_TASK_INDEX, "1")
    monkeypatch.setenv(contract.ENV_ADDRESS, "w1:1")
    return tmp_path


def loaded_by(program: str) -> set[str]:
    """Give the top-level modules that a fresh Python has loaded after a program, without site-packages' own hooks."""
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"{program}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})",
        ],
        env={"PYTHONPATH": str(ROOT / "resolver"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", tfcluster_resolver.__all__)
def test_names_load_the_standard_library_only(name):
    """Importing any public name loads nothing but the standard library and this package."""
    assert loaded_by(f"from tfcluster_resolver import {name}") <= {
        *sys.stdlib_module_names,
        "tfcluster_resolver",
        "__main__",
    }


def test_package_loads_no_module_of_its_own():
    """The package alone loads none of its modules: each name is loaded when it is used."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import tfcluster_resolver, sys; print([n for n in sys.modules if 'tfcluster_resolver.' in n])",
        ],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "resolver")},
    )

    assert done.stdout.strip() == "[]"


def test_visible_names_are_the_public_ones():
    """What ``dir()`` shows is ``__all__``, each name can be loaded, and any other is an AttributeError."""
    assert dir(tfcluster_resolver) == sorted(tfcluster_resolver.__all__)
    assert all(getattr(tfcluster_resolver, name) is not None for name in tfcluster_resolver.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        tfcluster_resolver.nothing_like_it  # noqa: B018 - the look-up is the test


def test_every_error_is_public_and_drawn():
    """Each error is in ``__all__`` and in the tree of its module's docstring."""
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and name.endswith("Error")}

    assert defined <= set(tfcluster_resolver.__all__)
    assert defined == {"TFClusterError", *re.findall(r"── (\w+Error)\b", errors.__doc__)}


def test_version_is_the_distributions():
    """The package's version is that of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert tfcluster_resolver.__version__ == project["version"]


def test_show_tells_people(in_pod, capsys):
    """``show`` lists epoch, own task, every task with its address and devices, and the filters."""
    assert main(["show"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "cluster      n/c, epoch 4, rpc layer grpc",
        f"view         {in_pod}/cluster.json",
        "this task    /job:worker/task:1 at w1:1",
        "tasks",
        "  /job:chief/task:0   c0:1",
        "  /job:worker/task:0  w0:1  nvidia.com/gpu=2",
        "  /job:worker/task:1  w1:1  nvidia.com/gpu=1  (this task)",
        "device filters",
        "  /job:worker/task:0 to task:3 sees /job:chief, /job:ps",
    ]


@pytest.mark.usefixtures("in_pod")
def test_show_tells_programs(capsys):
    """``show --json`` tells the same as one JSON object."""
    assert main(["show", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told.pop("view").endswith("/cluster.json")
    assert told == {
        "cluster": {"name": "c", "namespace": "n", "uid": "u"},
        "epoch": 4,
        "rpcLayer": "grpc",
        "task": {"job": "worker", "index": 1, "address": "w1:1"},
        "jobs": {"chief": ["c0:1"], "worker": ["w0:1", "w1:1"]},
        "deviceFilters": {"worker": {str(index): ["/job:chief", "/job:ps"] for index in range(4)}},
        "accelerators": {"worker": {"0": {GPU: 2}, "1": {GPU: 1}}},
    }


@pytest.mark.parametrize(
    ("arguments", "change", "ending"),
    [
        (["show", "--directory", "/nowhere"], {}, (66, "no view")),
        (["serve", "--directory", "/nowhere"], {}, (66, "no view")),
        (["show"], {contract.ENV_TASK_INDEX: "x"}, (78, "not a task index")),
        (["serve"], {contract.ENV_ADDRESS: "w1"}, (78, "not an address of the form host:port")),
    ],
)
@pytest.mark.usefixtures("in_pod")
def test_failures_have_a_code_and_a_reason(monkeypatch, capsys, arguments, change, ending):
    """A command that cannot work says why in one line and ends with the code that its help lists."""
    for name, value in change.items():
        monkeypatch.setenv(name, value)

    code, said = ending
    assert main(arguments) == code
    assert said in capsys.readouterr().err


def test_malformed_view_has_a_code(in_pod, capsys):
    """A malformed view is told from a missing one by its exit code."""
    (in_pod / "cluster.json").write_text("{")

    assert main(["show"]) == 65
    assert f"{in_pod}/cluster.json is not a view" in capsys.readouterr().err


@pytest.mark.usefixtures("in_pod")
def test_serve_without_tensorflow_is_said(monkeypatch, capsys):
    """Where TensorFlow is not installed, ``serve`` says so with a code of its own."""
    monkeypatch.setenv(contract.ENV_ADDRESS, "w1:0")

    assert main(["serve"]) == 69
    assert "the task server needs TensorFlow" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["dance"], ["show", "--yaml"]])
def test_wrong_arguments_show_the_usage(capsys, arguments):
    """Wrong arguments end with exit code 2 and the usage."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert "python -m tfcluster_resolver" in capsys.readouterr().err
