"""One namespace of a cluster with real kubelets: programs run, and can be called."""

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kubernetes import client, stream
from kubernetes.watch import Watch
from resize_programs import IDLE, stock_template, with_folder
from support.objects import NODES, PODS, Object, Objects
from support.waiting import eventually
from support.world import World
from task_programs import AWAIT_EPOCH, CALL, LISTEN, PORT, REACHED, RESOLVE, pod_template

#: A guard against hanging, far above the start of a pod on two busy processors.
POD_DEADLINE_SECONDS: Final = 120.0
#: The same for several pods with TensorFlow.
TRAINING_DEADLINE_SECONDS: Final = 300.0
VIEW: Final = "/etc/tfcluster/cluster.json"
#: The pod of `launch_broom`.
BROOM: Final = "broom-worker-0"


class LiveWorld(World):
    """A namespace with running pods; ``image`` has python3 and the resolver."""

    def __init__(self, objects: Objects, namespace: str, *, api: client.ApiClient, image: str) -> None:
        super().__init__(objects, namespace)
        self.image = image
        self._core = client.CoreV1Api(api)
        self._access = api.configuration

    def launch_listeners(self, name: str, jobs: dict[str, Object], *, program: str = LISTEN, **spec: Any) -> Object:
        """Create a TFCluster whose tasks listen on their ports; ``jobs`` adds fields of the jobs."""
        template = pod_template(self.image, program)
        return self.launch(name, {job: {"template": template, **fields} for job, fields in jobs.items()}, **spec)

    def launch_broom(self, *, node: str) -> None:
        """Start the pod BROOM, which mounts the folder /kept of a node and writes there only on request."""
        template = with_folder(stock_template(self.image, command=["python3", "-c", IDLE]), node=node)
        self.launch("broom", {"worker": {"template": template}})
        self.await_ready("broom")

    def start(self, *pods: Object) -> None:
        for pod in pods:
            self.objects.create(PODS, self.namespace, pod)
        names = {pod["metadata"]["name"] for pod in pods}
        eventually(
            lambda: {name for name, pod in self.pods().items() if is_pod_ready(pod)},
            lambda ready: names <= ready,
            what=f"{names} are ready",
            within=POD_DEADLINE_SECONDS,
        )

    # Programs in pods.

    def run(self, pod: str, *command: str) -> str:
        """Run a program in a pod's container and return its output; it must end with status 0."""
        # stream() replaces the transport of its client while it runs, and several threads use pods.
        answer = stream.stream(
            client.CoreV1Api(client.ApiClient(self._access)).connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            command=list(command),
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
        answer.run_forever(timeout=90)
        printed, complaint = answer.read_stdout(timeout=1) or "", answer.read_stderr(timeout=1) or ""
        assert answer.returncode == 0, f"{command[0]} in {pod} ended with {answer.returncode}: {printed}{complaint}"
        return printed

    def end(self, pod: str, how: int | str) -> None:
        self.run(pod, "sh", "-c", f"echo {how} > /tmp/end")

    def python(self, pod: str, program: str, *arguments: str) -> Any:
        return json.loads(self.run(pod, "python3", "-c", program, *arguments))

    def call(self, pod: str, addresses: Iterable[str]) -> dict[str, str]:
        """Connect from a pod to each address: return which pod responded."""
        return self.python(pod, CALL, *addresses)

    def resolve(self, pod: str, hosts: Iterable[str]) -> dict[str, list[str] | str]:
        """Resolve hosts in a pod: return their addresses."""
        return self.python(pod, RESOLVE, *hosts)

    def read(self, pod: str, file: str = VIEW) -> str:
        return self.run(pod, "cat", file)

    def await_epoch(self, pod: str, epoch: int, *, file: str = VIEW) -> Any:
        """Return a pod's own view file once it has at least this epoch."""
        view = self.python(pod, AWAIT_EPOCH, file, str(epoch))
        assert view["epoch"] >= epoch, f"{pod} still reads epoch {view['epoch']}, not {epoch}"
        return view

    def logs(self, pod: str) -> str:
        """Return the log of a pod's container; empty if it does not exist."""
        try:
            return self._core.read_namespaced_pod_log(pod, self.namespace) or ""
        except client.ApiException as error:
            if error.status in {400, 404}:
                return ""
            raise

    # Names.

    def address(self, pod: str, *, cluster: str = "c") -> str:
        """Return the address of a task, by the rules of "DNS for Services and Pods"."""
        return f"{pod}.{cluster}.{self.namespace}.svc:{PORT}"

    def hosts(self, pods: Iterable[str], *, cluster: str = "c") -> list[str]:
        return [self.address(pod, cluster=cluster).rpartition(":")[0] for pod in pods]

    # Objects.

    def ip(self, pod: str) -> str:
        return self.demand(PODS, pod)["status"].get("podIP", "")

    def declared(self, *names: str) -> dict[str, Object]:
        """Return pods without the fields that the kubelet writes: equal before and after means no write."""
        return {name: without_status(self.demand(PODS, name)) for name in names}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def pods_version(self) -> str:
        """Return the current resourceVersion of the pods, for :meth:`pod_history`."""
        return self._core.list_namespaced_pod(self.namespace, limit=1).metadata.resource_version

    def pod_history(self, since: str, *, gone: Iterable[str], times: int = 1, within: float = 60) -> list[Object]:
        """Return every state of the pods since a resourceVersion."""
        missing = dict.fromkeys(gone, times)
        history, watch = [], Watch()
        for event in watch.stream(
            self._core.list_namespaced_pod, self.namespace, resource_version=since, timeout_seconds=int(within)
        ):
            pod = event["raw_object"]
            history.append(pod)
            if event["type"] == "DELETED" and pod["metadata"]["name"] in missing:
                missing[pod["metadata"]["name"]] -= 1
            if not any(missing.values()):
                watch.stop()
        states = [(p["metadata"]["name"], p["status"].get("phase"), p["status"].get("reason")) for p in history]
        assert not any(missing.values()), f"the history does not say that these are gone: {missing}\n{states}"
        return history

    # Waiting.

    def await_ready(self, name: str) -> Object:
        """Wait until the TFCluster is Ready in its current generation; return it."""
        return eventually(lambda: self.cluster(name), is_ready, what=f"{name} is Ready", within=POD_DEADLINE_SECONDS)

    def await_success(self, name: str) -> None:
        eventually(
            lambda: self.status(name).get("conditions", []),
            lambda conditions: any(c["type"] == "Succeeded" and c["status"] == "True" for c in conditions),
            what=f"{name} succeeds",
            within=TRAINING_DEADLINE_SECONDS,
        )

    def await_log(self, pod: str, enough: Callable[[str], object], *, what: str) -> str:
        return eventually(lambda: self.logs(pod), enough, what=what, within=TRAINING_DEADLINE_SECONDS)

    def await_replaced(self, pod: str, uid: str) -> Object:
        """Wait until the pod with this UID has a ready replacement; return it."""
        return eventually(
            lambda: self.get(PODS, pod),
            lambda found: found and found["metadata"]["uid"] != uid and is_pod_ready(found),
            what=f"another {pod} is ready",
            within=POD_DEADLINE_SECONDS,
        )

    def await_answer(self, caller: str, pod: str) -> None:
        """Wait until a connection from one pod to the address of another reaches it: DNS can keep the old IP."""
        address = self.address(pod)
        eventually(
            lambda: self.call(caller, [address])[address],
            lambda answer: answer == pod,
            what=f"{caller} reaches {pod} at {address}",
        )

    def allocatable(self, resource: str) -> int:
        """Count an extended resource over all nodes."""
        nodes = self.objects.list(NODES)
        return sum(int(node["status"].get("allocatable", {}).get(resource, "0")) for node in nodes)


def is_ready(cluster: Object) -> bool:
    generation = cluster["metadata"]["generation"]
    conditions = {c["type"]: c for c in cluster.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready", {})
    return (ready.get("status"), ready.get("observedGeneration")) == ("True", generation)


def who_reaches(addresses: Iterable[str], callers: Mapping[str, LiveWorld]) -> dict[str, set[str]]:
    """Connect to addresses from all pods concurrently; return for each address the pods that got a response."""
    found: dict[str, set[str]] = {address: set() for address in addresses}
    with ThreadPoolExecutor(len(callers)) as pool:
        answers = pool.map(lambda name, world: world.python(name, REACHED, *found), callers, callers.values())
        for caller, reached in zip(callers, answers, strict=True):
            for address in reached:
                found[address].add(caller)
    return found


def is_pod_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))


def without_status(pod: Object) -> Object:
    """Return a pod without the fields that the kubelet can write at any time, and their managed fields."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "resourceVersion"}
    metadata["managedFields"] = [entry for entry in metadata["managedFields"] if entry.get("subresource") != "status"]
    return {"metadata": metadata, "spec": pod["spec"], "restarts": restarts(pod)}


def restarts(pod: Object) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))
