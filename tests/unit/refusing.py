"""An API server that refuses some kinds of object to this user, as RBAC does."""

from __future__ import annotations

import pytest

from tfcluster.errors import RefusedError
from tfcluster.kubernetes_api import KubernetesApi


def refuse(monkeypatch: pytest.MonkeyPatch, *plurals: str) -> None:
    """Let every request of the client for these kinds be refused."""
    whole = KubernetesApi._open

    def opened(self, method, path, **options):
        steps = path.split("/")
        for plural in plurals:
            if plural in steps:
                raise RefusedError(f"{plural} is forbidden: User does not have access", status=403, reason="Forbidden")
        return whole(self, method, path, **options)

    monkeypatch.setattr(KubernetesApi, "_open", opened)
