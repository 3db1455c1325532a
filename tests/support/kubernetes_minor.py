"""Skip tests that need a newer Kubernetes; docs/reference/versions.md has a row for each."""

import os

import pytest

from local_kubernetes.control_plane import MINOR_VARIABLE


def require_kubernetes(minor: str, what: str) -> None:
    if older_than(minor):
        pytest.skip(f"Kubernetes {minor} brought {what}")


def older_than(minor: str) -> bool:
    tested = os.environ.get(MINOR_VARIABLE, "")
    return bool(tested) and _number(tested) < _number(minor)


def _number(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))
