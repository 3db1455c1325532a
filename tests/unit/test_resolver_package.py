"""The package as a whole: what importing it loads, and what it shows."""

from __future__ import annotations

import importlib.resources
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfcluster_resolver
from tfcluster_resolver import errors

ROOT = Path(__file__).resolve().parent.parent.parent


def loaded_by(program: str, flag: str = "-S") -> set[str]:
    """Give the top-level modules that a fresh Python has loaded after a program; -S leaves site-packages out."""
    done = subprocess.run(
        [
            sys.executable,
            flag,
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


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("from tfcluster_resolver import ClusterSpec; ClusterSpec(ClusterSpec({'w': ['a:1']})).as_dict()", False),
        (
            "import tfcluster_resolver as t; f = t.ClusterDeviceFilters(); f.set_device_filters('w', 0, ['/job:ps'])",
            False,
        ),
        ("from tfcluster_resolver import _protobuf", False),
        ("from tfcluster_resolver import ClusterSpec; ClusterSpec({}).as_cluster_def()", True),
    ],
)
def test_protobuf_is_loaded_when_it_is_needed(program, loaded):
    """Where protobuf is installed it is loaded by the call that makes a message, and by no other."""
    assert ("google" in loaded_by(program, "-I")) == loaded


def test_resolver_shows_its_signature():
    """Tools that ask for the resolver's arguments get them, with their defaults."""
    from tfcluster_resolver import TFClusterResolver

    assert str(inspect.signature(TFClusterResolver)).startswith(
        "(task_type: 'str | None' = None, task_id: 'int | None' = None, rpc_layer: 'str | None' = None, *, directory:"
    )


def test_package_has_types():
    """Type checkers take the annotations of an installed package where it says that it has them (PEP 561)."""
    assert importlib.resources.files(tfcluster_resolver).joinpath("py.typed").is_file()


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


def test_every_error_is_drawn_and_caught_by_one_class():
    """Each error is in the tree of its module's docstring, in its place, and is a TFClusterError."""
    defined = {
        name: value for name, value in vars(errors).items() if isinstance(value, type) and name.endswith("Error")
    }
    drawn = re.findall(r"^ {4}([ │├└─]*)(\w+Error)\b", errors.__doc__, re.MULTILINE)
    path: dict[int, str] = {}
    parents: dict[str, str | None] = {}
    for branch, name in drawn:
        depth = len(branch) // 5
        path[depth] = name
        parents[name] = path[depth - 1] if depth else None

    assert parents == {
        name: next((base.__name__ for base in value.__bases__ if base.__name__ in defined), None)
        for name, value in defined.items()
    }
    assert all(issubclass(value, errors.TFClusterError) for value in defined.values())


def test_errors_come_with_the_package():
    """``tfcluster_resolver.errors`` is there for an ``except`` clause after a mere import of the package."""
    program = "import tfcluster_resolver as t\ntry:\n    raise t.errors.ViewError\nexcept t.errors.TFClusterError: pass"

    assert "tfcluster_resolver" in loaded_by(program)
