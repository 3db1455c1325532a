"""An aiohttp session with a kubeconfig's credentials."""

import ssl
from pathlib import Path

import aiohttp
from kubernetes import client, config


def session(kubeconfig: Path, *, connections: int) -> tuple[aiohttp.ClientSession, str]:
    """Open a session."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    token = configuration.get_api_key_with_prefix("authorization")
    opened = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=connections, keepalive_timeout=600),
        headers={"Authorization": token} if token else {},
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=2**20,
    )
    return opened, configuration.host
