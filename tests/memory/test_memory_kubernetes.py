"""The responses of the API server in memory equal those of a real one."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from kubernetes import client, config
from support import conversation
from support.manifests import tfcluster
from support.memory_kubernetes import DEFAULT_RESOURCES, MemoryKubernetes, MemorySession, resource_of_definition
from support.objects import PODS

NAMESPACE = "default"
HEADERS = {"User-Agent": "conversation/1"}
DEFINITION = Path(__file__).resolve().parents[2] / "crds" / "tfcluster.yaml"


@asynccontextmanager
async def real_session(kubeconfig):
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(configuration.cert_file, configuration.key_file)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=HEADERS) as session:
        yield session, configuration.host


async def converse(session, server, namespace):
    steps = conversation.steps(tfcluster("c").job("worker", replicas=2).build())
    listed = await session.request("GET", f"{server}{PODS.path(namespace)}")
    since = (await listed.json())["metadata"]["resourceVersion"]
    heard = await conversation.hold(session, server, namespace, steps)
    heard["watch of all"] = await conversation.watched(session, server, namespace, PODS, selector="", since=since)
    heard["watch of some"] = await conversation.watched(session, server, namespace, PODS, selector="b", since=since)
    return heard


async def converse_with_both(kubeconfig, namespace):
    defined = resource_of_definition(yaml.safe_load(DEFINITION.read_text(encoding="utf-8")))
    kube = MemoryKubernetes(lambda: 1_800_000_000.0, [defined, *(one for one in DEFAULT_RESOURCES if not one.custom)])
    async with real_session(kubeconfig) as (session, server):
        real = await converse(session, server, namespace)
    return real, await converse(MemorySession(kube, latency=0.0, headers=HEADERS), "http://memory", NAMESPACE)


@pytest.fixture(scope="module")
def both(control_plane, admin, new_namespace):
    del admin  # it installs the CRD
    return asyncio.run(converse_with_both(control_plane.kubeconfig, new_namespace()))


def facts():
    return [step.fact for step in conversation.steps({})] + ["watch of all", "watch of some"]


@pytest.mark.parametrize("fact", facts())
def test_memory_kubernetes_answers_as_the_real_one(both, fact):
    real, memory = both
    assert memory[fact] == real[fact]
