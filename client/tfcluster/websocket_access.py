"""What a websocket to the API server needs: the official client's credentials, TLS and proxy, for aiohttp."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from kubernetes import client
from kubernetes.client.rest import should_bypass_proxies


@dataclass(frozen=True, slots=True)
class WebsocketAccess:
    """How an API server is reached by websocket.

    Attributes:
        server: its URL, without a path.
        context: how the server is known and the client certified; None for plain HTTP.
        proxy: the URL of a proxy; None for none.
    """

    server: str
    context: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)


def websocket_access(configuration: client.Configuration) -> WebsocketAccess:
    """Read how an API server is reached; the headers of a request are not in it, because tokens expire."""
    server = str(configuration.host)
    proxy = configuration.proxy or None
    if proxy and should_bypass_proxies(server, configuration.no_proxy or ""):
        proxy = None
    if not server.startswith("https:"):
        return WebsocketAccess(server, proxy=proxy)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.assert_hostname is False or not configuration.verify_ssl:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return WebsocketAccess(server, context, proxy)
