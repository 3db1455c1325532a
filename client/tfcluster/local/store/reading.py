"""Lists: selectors, pages over one consistent snapshot, exact versions, and metadata alone."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster.local.store import refusals
from tfcluster.local.store.selectors import selector_of
from tfcluster.local.store.state import State, Storage, Version, encode

_CONTINUE_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)
PARTIAL: Final = "PartialObjectMetadata"


def encode_list(state: State, storage: Storage, namespace: str | None, params: Mapping[str, str], accept: str) -> bytes:
    """Answer a list."""
    revision, start = _where(state, storage, params)
    found = storage.every(namespace) if revision == state.revision else storage.every_at(revision, namespace)
    matches = selector_of(params.get("labelSelector", ""), params.get("fieldSelector", ""))
    versions = [one for one in found if one.key > start and matches(one.body)]
    limit = int(params.get("limit") or 0)
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if limit and len(versions) > limit:
        if not params.get("labelSelector") and not params.get("fieldSelector"):
            metadata["remainingItemCount"] = len(versions) - limit
        versions = versions[:limit]
        metadata["continue"] = _token(revision, versions[-1].key)
    partial = PARTIAL in accept
    kind = f"{PARTIAL}List" if partial else f"{storage.resource.kind}List"
    api_version = "meta.k8s.io/v1" if partial else storage.resource.api_version
    head = encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(encode_items(storage, versions, partial=partial)) + b"]}"


def encode_items(storage: Storage, versions: Sequence[Version], *, partial: bool) -> list[bytes]:
    """Encode objects as the items of a list, or only their metadata."""
    if partial:
        return [encode_partial(one) for one in versions]
    if storage.resource.custom:
        return [one.encoded for one in versions]
    # In the list of a built-in kind, the items do not repeat kind and apiVersion.
    cut = len(storage.prefix)
    return [b"{" + one.encoded[cut:] for one in versions]


def encode_partial(version: Version) -> bytes:
    """Encode an object's metadata only."""
    return encode({"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": version.body["metadata"]})


def _where(state: State, storage: Storage, params: Mapping[str, str]) -> tuple[int, str]:
    if token := params.get("continue"):
        revision, start = _read_token(token)
        if revision < storage.floor:
            raise refusals.expired(_CONTINUE_TOO_OLD)
        return revision, start
    asked = params.get("resourceVersion", "")
    wanted = read_version(asked)
    if wanted > state.revision:
        raise refusals.too_large_version(wanted, state.revision)
    if params.get("resourceVersionMatch") == "Exact":
        if wanted < storage.floor:
            raise refusals.expired("The resourceVersion for the provided list is too old.")
        return wanted, ""
    return state.revision, ""


def read_version(text: str) -> int:
    """Read a resourceVersion of a query; an invalid one is rejected with 400."""
    if text and not text.isdigit():
        why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise refusals.bad_request(f"invalid resource version: resourceVersion: {why}")
    return int(text or 0)


def _token(revision: int, key: str) -> str:
    return base64.urlsafe_b64encode(encode({"v": "meta.k8s.io/v1", "rv": revision, "start": key})).decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        told = json.loads(base64.urlsafe_b64decode(token))
        return int(told["rv"]), str(told["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        why = "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        raise refusals.bad_request(why) from error
