"""Classes of the API server's errors."""

from __future__ import annotations

import pytest

from tfcluster_operator.kube import errors


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[]", b'{"reason": 5}', b"\xff" * 300])
def test_response_without_a_status_is_reported_verbatim(body):
    """A proxy on the way can return any text; its first 200 bytes are the message."""
    error = errors.from_response(403, body)
    assert ("", body[:200].decode(errors="replace")) == (error.reason, error.message)
