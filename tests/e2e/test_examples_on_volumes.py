"""The examples with volumes, under the Pod Security Standard `restricted`: their files outlive their pods.

The cluster's default StorageClass provides their volumes; without one, folders of a node do.
"""

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_world import BROOM, TRAINING_DEADLINE_SECONDS, LiveWorld
from support.manifests import kueue_object, tfcluster
from support.objects import (
    CLUSTER_QUEUES,
    CRDS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    WORKLOAD_PRIORITIES,
    Kind,
    Objects,
)
from support.waiting import eventually
from task_programs import HARMLESS, LISTEN, pod_template

pytestmark = pytest.mark.exhaustive

CLAIMS = ("digits-kept", "digits-board", "digits-judged", "digits-queued")
VOLUMES = Kind("v1", "persistentvolumes", namespaced=False)
STORAGE_CLASSES = Kind("storage.k8s.io/v1", "storageclasses", namespaced=False)
#: The annotation of the default StorageClass.
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CHIEF = "digits-kept-chief-0"


@pytest.fixture(scope="module", autouse=True)
def volumes(
    restricted_world: LiveWorld,
    live_world: Callable[[str], LiveWorld],
    objects: Objects,
    new_namespace: Callable[[], str],
) -> Iterator[None]:
    """Volumes for the claims: created by the cluster, or manually and removed afterwards."""
    classes = objects.list(STORAGE_CLASSES)
    if any(one["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true" for one in classes):
        yield
        return
    node = objects.list(NODES)[0]["metadata"]["labels"]["kubernetes.io/hostname"]
    name = f"tfcluster-{restricted_world.namespace}"
    broom = live_world(new_namespace())  # another namespace: `restricted` allows no folder of a node
    broom.launch_broom(node=node)
    for claim in CLAIMS:
        broom.run(BROOM, "sh", "-c", f"mkdir -p /kept/{name}/{claim} && chmod 777 /kept/{name}/{claim}")
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": restricted_world.namespace, "name": claim},
            "hostPath": {"path": f"/tmp/{name}/{claim}", "type": "Directory"},  # noqa: S108 - the node's
        }
        objects.create(VOLUMES, "", {"metadata": {"name": f"{name}-{claim}"}, "spec": spec})
    yield
    for claim in CLAIMS:
        objects.delete(VOLUMES, "", f"{name}-{claim}")
    broom.run(BROOM, "rm", "-rf", f"/kept/{name}")
    objects.delete(NAMESPACES, "", broom.namespace)


@pytest.fixture(scope="module")
def kept(apply_example: Callable[[str], LiveWorld]) -> LiveWorld:
    """Two examples that train to their end, in parallel."""
    apply_example("checkpoints.yaml")
    return apply_example("evaluator.yaml")


def await_log(world: LiveWorld, pod: str, pattern: str) -> re.Match[str]:
    return eventually(
        lambda: re.search(pattern, world.logs(pod), re.MULTILINE),
        what=f"the log of {pod} says {pattern}",
        within=TRAINING_DEADLINE_SECONDS,
    )


def test_checkpoints_example_resumes_after_pod_deletion(kept: LiveWorld, kubectl: Callable):
    await_log(kept, CHIEF, r"^pass 3:")
    uid = kept.uids()[CHIEF]

    deleted = kubectl("-n", kept.namespace, "delete", "pod", CHIEF)
    assert deleted.returncode == 0, deleted.stderr
    kept.await_replaced(CHIEF, uid)

    assert int(await_log(kept, CHIEF, r"^(\d+) passes were completed before")[1]) >= 2
    kept.await_success("digits-kept")
    assert kept.status("digits-kept")["restarts"] == 0
    assert re.search(r"^done: accuracy 0\.[89]", kept.logs(CHIEF), re.MULTILINE)


@pytest.fixture
def queue(kubeconfig: Path, objects: Objects, restricted_world: LiveWorld) -> Iterator[None]:
    """A queue of the real Kueue for the three tasks of the example, with the priority class `urgent`."""
    from local_kubernetes import checkout, choice, kueue, node_layout

    if choice.chosen().name != "node" or checkout.KUBECONFIG.resolve() != kubeconfig:
        pytest.skip("only on a cluster that `make cluster` raised itself may Kueue be installed")
    if objects.get(CRDS, "", "workloads.kueue.x-k8s.io") is None:
        kueue.start(node_layout.plane(), enter=node_layout.enter(node_layout.first_process()))
    name = restricted_world.namespace
    limits = {"cpu": "150m", "memory": "1Gi"}
    quota = {"name": name, "resources": [{"name": of, "nominalQuota": most} for of, most in limits.items()]}
    shape = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [*limits], "flavors": [quota]}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    made = [
        (FLAVORS, "", kueue_object("ResourceFlavor", name, spec={})),
        (CLUSTER_QUEUES, "", kueue_object("ClusterQueue", name, spec=shape)),
        (LOCAL_QUEUES, name, kueue_object("LocalQueue", "team", spec={"clusterQueue": name})),
        (WORKLOAD_PRIORITIES, "", kueue_object("WorkloadPriorityClass", name, value=1000)),
    ]
    for kind, namespace, one in made:
        objects.create(kind, namespace, one)
    yield
    for kind, namespace, one in reversed(made):
        objects.delete(kind, namespace, one["metadata"]["name"])


def queued(example: str) -> str:
    """Put the example into the queue, under another name."""
    named = "metadata:\n  name: digits-queued\nspec:\n  backoffLimit"
    labelled = named.replace("\nspec", "\n  labels: {kueue.x-k8s.io/queue-name: team}\nspec")
    return example.replace("digits-kept", "digits-queued").replace(named, labelled)


@pytest.mark.usefixtures("queue")
def test_training_that_is_preempted_continues_from_its_checkpoint(apply_example: Callable, operator_image: str):
    """A more urgent cluster takes the quota; when that has gone, the example continues after its last pass."""
    world: LiveWorld = apply_example("checkpoints.yaml", queued)
    await_log(world, "digits-queued-chief-0", r"^pass 3:")
    asking = {"resources": {"requests": {"cpu": "50m"}}, "securityContext": HARMLESS}
    template = pod_template(operator_image, LISTEN, **asking)
    labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": world.namespace}
    world.apply(tfcluster("urgent").metadata(labels=labels).job("worker", template=template).build())
    world.await_event("digits-queued", "QuotaWithdrawn")
    world.await_ready("urgent")
    assert world.pods_of("digits-queued") == {}

    world.remove("urgent")
    assert int(await_log(world, "digits-queued-chief-0", r"^(\d+) passes were completed before")[1]) >= 2
    assert world.status("digits-queued")["restarts"] == 0
    world.remove("digits-queued")


def test_evaluator_example_judges_to_the_end(kept: LiveWorld):
    """The evaluator evaluates checkpoints during the training, including the last one; then the cluster succeeds."""
    kept.await_success("digits-judged")

    log = kept.logs("digits-judged-evaluator-0")
    judged = re.findall(r"^evaluated pass (\d+): .* accuracy (0\.\d+)", log, re.MULTILINE)
    assert judged[-1][0] == "20"
    assert float(judged[-1][1]) >= 0.8


def test_tensorboard_example_shows_the_training(apply_example: Callable[[str], LiveWorld], kubectl):
    """Through ``kubectl port-forward``, TensorBoard shows the loss and the accuracy of the running training."""
    world = apply_example("tensorboard.yaml")
    waited = kubectl("-n", world.namespace, "wait", "--for=condition=Ready", "tfcluster/digits-board", "--timeout=150s")
    assert waited.returncode == 0, waited.stderr
    # In a separate process, because the runner waits for the end.
    program = [*kubectl().args, "-n", world.namespace, "port-forward", "digits-board-chief-0", ":6006"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())[1]
        try:
            tags = eventually(
                lambda: _tags(f"http://127.0.0.1:{port}/data/plugin/scalars/tags"),
                lambda found: "digits" in found,
                what="TensorBoard has read the logs",
                within=TRAINING_DEADLINE_SECONDS,
            )
        finally:
            forward.terminate()

    assert set(tags["digits"]) == {"loss", "accuracy"}
    world.remove("digits-board")


def _tags(url: str) -> dict[str, dict[str, object]]:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own, on loopback
        return json.load(answer)
