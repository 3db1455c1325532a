"""Submit a manifest with a dry run: the API server accepts it, or rejects it with a message."""

import json
import re
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from .manifests import TFClusterBuilder
from .objects import TFCLUSTERS, Object, Objects

#: The server validates the manifest and stores nothing; kubectl uses Strict.
DRY_RUN = TFCLUSTERS.path("default") + "?dryRun=All&fieldValidation=Strict"


def accepted(fact: str, manifest: TFClusterBuilder) -> Any:
    """Build a row of a table of valid manifests; the id states the fact."""
    return pytest.param(manifest.build(), id=fact)


def refused(fact: str, manifest: TFClusterBuilder | Object, path: str, remedy: str) -> Any:
    """Build a row of a table of invalid ones: the message must contain the path and the remedy."""
    return pytest.param(manifest if isinstance(manifest, dict) else manifest.build(), path, remedy, id=fact)


def taken(objects: Objects, manifest: Object) -> Object:
    """Submit a valid manifest; return it as the server would store it."""
    return objects.request("POST", DRY_RUN, manifest)


def refusal(objects: Objects, manifest: Object) -> str:
    """Submit an invalid manifest; return the message, with paths as people write them.

    The server writes a key of a map as [worker] in the message of a rule, and as .worker in that of the schema.
    """
    with pytest.raises(ApiException) as caught:
        objects.request("POST", DRY_RUN, manifest)
    assert caught.value.status in (400, 422), caught.value
    return message_of(caught.value)


def message_of(error: ApiException) -> str:
    """Return the message of a rejection, with paths as people write them."""
    message: str = json.loads(error.body)["message"]
    return re.sub(r"\[([a-z]\w*)\]", r".\1", message)
