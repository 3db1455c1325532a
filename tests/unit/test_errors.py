"""Classes of the API server's errors."""

from __future__ import annotations

import msgspec
import pytest

from tfcluster_operator.kube import errors


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "NotFound", errors.NotFoundError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (409, "Conflict", errors.ConflictError),
        (409, "", errors.ConflictError),
        (410, "Expired", errors.GoneError),
        (403, "Forbidden", errors.ApiError),
        (422, "Invalid", errors.ApiError),
        (401, "Unauthorized", errors.ApiError),
    ],
)
def test_rejections_have_their_own_classes(status, reason, kind):
    """Each kind of rejection with its own handling has a class; all keep the server's message."""
    body = msgspec.json.encode({"kind": "Status", "reason": reason, "message": "why", "code": status})
    error = errors.from_response(status, body)
    assert type(error) is kind
    assert (status, reason, "why") == (error.status, error.reason, error.message)
    assert f"{status} {reason}: why" == str(error)


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[]", b'{"reason": 5}', b"\xff" * 300])
def test_response_without_a_status_is_reported_verbatim(body):
    """A proxy on the way can return any text; its first 200 bytes are the message."""
    error = errors.from_response(403, body)
    assert ("", body[:200].decode(errors="replace")) == (error.reason, error.message)


def test_every_rejection_is_a_kube_error():
    """Callers that only need to know that a request failed catch one class."""
    assert all(issubclass(kind, errors.KubeError) for kind in (errors.ApiError, errors.UnreachableError))
    assert not issubclass(errors.UnreachableError, errors.ApiError)
