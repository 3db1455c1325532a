"""What the API server says to a manifest: it takes it, or it refuses it with a message.

It decides how a test asks without storing anything; which manifests are good is the tests' matter.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from .manifests import TFClusterBuilder
from .objects import TFCLUSTERS, Object, Objects

#: The server checks everything and stores nothing; Strict is what kubectl asks for.
DRY_RUN = TFCLUSTERS.path("default") + "?dryRun=All&fieldValidation=Strict"


def accepted(fact: str, manifest: TFClusterBuilder) -> Any:
    """Make one row of a table of good manifests: the id is the fact."""
    return pytest.param(manifest.build(), id=fact)


def refused(fact: str, manifest: TFClusterBuilder | Object, path: str, remedy: str) -> Any:
    """Make one row of a table of bad ones: the id is the fact, the message must hold the path and the remedy."""
    return pytest.param(manifest if isinstance(manifest, dict) else manifest.build(), path, remedy, id=fact)


def taken(objects: Objects, manifest: Object) -> Object:
    """Submit a manifest that must be taken; returns it as the server would store it."""
    return objects.request("POST", DRY_RUN, manifest)


def refusal(objects: Objects, manifest: Object) -> str:
    """Submit a manifest that must be refused; returns the message in the form of path that people write.

    The server writes a key of a map as [worker] where a rule refuses, and as .worker where the schema does.
    """
    with pytest.raises(ApiException) as caught:
        objects.request("POST", DRY_RUN, manifest)
    assert caught.value.status in (400, 422), caught.value
    return message_of(caught.value)


def message_of(error: ApiException) -> str:
    """Give the message of a refusal in the form of path that people write."""
    message: str = json.loads(error.body)["message"]
    return re.sub(r"\[([a-z]\w*)\]", r".\1", message)
