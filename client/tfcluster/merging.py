"""What a TFCluster becomes when a manifest is applied to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.declared import complete
from tfcluster.errors import ConflictError, RefusedError
from tfcluster.kubernetes_api import FIELD_MANAGER, TFCLUSTERS, KubernetesApi

Object = dict[str, Any]

#: Where `kubectl apply` keeps what was applied last.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Merged:
    """What a TFCluster becomes.

    Attributes:
        body: the TFCluster after it.
        how: how that was found out, in words.
        notes: what the user should know besides.
    """

    body: Object
    how: str
    notes: tuple[str, ...] = ()


def merge(api: KubernetesApi, wanted: Mapping[str, Any], live: Mapping[str, Any] | None, namespace: str) -> Merged:
    """Ask the API server what a TFCluster becomes, without changing it.

    Raises:
        RefusedError: the API server would not take it.
    """
    last = _last_applied(live)
    try:
        if live is not None and last is not None:
            change = three_way(last, wanted)
            body = api.patch(TFCLUSTERS, live["metadata"]["name"], change, namespace, dry_run=True)
            return Merged(body, "as `kubectl apply` would make it")
        return _applied(api, wanted, namespace)
    except RefusedError as error:
        if error.status != 403:
            raise
    note = "you may not write TFClusters here, so nothing was asked of the API server: it may say no"
    return Merged(offline(wanted, live, namespace), "worked out here", (note,))


def _applied(api: KubernetesApi, wanted: Mapping[str, Any], namespace: str) -> Merged:
    how = "as `tfcluster apply` would make it"
    try:
        return Merged(api.apply(TFCLUSTERS, wanted, namespace, dry_run=True), how)
    except ConflictError as error:
        body = api.apply(TFCLUSTERS, wanted, namespace, dry_run=True, force=True)
        return Merged(body, how, (f"it needs --force-conflicts: {' '.join(str(error).split())}",))


def offline(wanted: Mapping[str, Any], live: Mapping[str, Any] | None, namespace: str) -> Object:
    """Work out what a TFCluster becomes: what the manifest leaves out stays, unless `kubectl apply` put it there."""
    if live is None:
        return complete(wanted, namespace)
    change = three_way(_last_applied(live) or {}, wanted)
    merged = _patched({key: value for key, value in live.items() if key != "status"}, change)
    return complete(merged, namespace, live)


def three_way(last: Mapping[str, Any], wanted: Mapping[str, Any]) -> Object:
    """Return the merge patch from what was wanted before to what is wanted now."""
    change: Object = {key: None for key in last if key not in wanted}
    for key, value in wanted.items():
        before = last.get(key)
        both = isinstance(value, Mapping) and isinstance(before, Mapping)
        change[key] = three_way(before or {}, value) if both else value
    return {key: value for key, value in change.items() if key != "status"}


def _patched(old: Any, change: Mapping[str, Any]) -> Object:
    """Carry out a merge patch (RFC 7396)."""
    new = dict(old) if isinstance(old, Mapping) else {}
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _patched(new.get(key), value) if isinstance(value, Mapping) else value
    return new


def _last_applied(live: Mapping[str, Any] | None) -> Object | None:
    """Give what `kubectl apply` applied last; None where it is not who applies."""
    about: Mapping[str, Any] = (live or {}).get("metadata") or {}
    ours = any(
        one.get("manager") == FIELD_MANAGER and one.get("operation") == "Apply"
        for one in about.get("managedFields") or ()
    )
    text = (about.get("annotations") or {}).get(LAST_APPLIED)
    if ours or not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
