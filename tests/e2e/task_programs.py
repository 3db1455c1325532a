"""Programs for task pods that need only Python, for ``python3 -c``; all end immediately at SIGTERM."""

from typing import Any, Final

from support.objects import Object

PORT: Final = 2222

_OBEY: Final = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
"""

#: Listens on the task's own port and answers every connection with the pod's host name.
LISTEN: Final = f"""{_OBEY}
import contextlib, socket
port = int(os.environ["TFCLUSTER_ADDRESS"].rpartition(":")[2])
with socket.create_server(("", port)) as server:
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(socket.gethostname().encode())
"""

#: Listens on each port given and answers every connection with the pod's host name.
LISTEN_ON: Final = f"""{_OBEY}
import contextlib, selectors, socket, sys
ready = selectors.DefaultSelector()
for port in sys.argv[1:]:
    ready.register(socket.create_server(("", int(port))), selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        connection, _ = key.fileobj.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(socket.gethostname().encode())
"""

#: Listens, and ends with the exit code in /tmp/end, or uses more and more memory if that says "eat".
END_ON_DEMAND: Final = f"""
import pathlib, threading, time
order = pathlib.Path("/tmp/end")
def end():
    while not (text := order.read_text().strip() if order.exists() else ""):
        time.sleep(0.05)
    held = []
    while text == "eat":
        held.append(b"x" * (8 << 20))
    print(f"ends with {{text}}", flush=True)
    os._exit(int(text))
threading.Thread(target=end, daemon=True).start()
{LISTEN}
"""


#: Fails in its first container, and listens in the next one of the same pod, which finds the first one's mark.
CRASH_ONCE: Final = f"""
import pathlib, sys
mark = pathlib.Path("/scratch/mark")
if not mark.exists():
    mark.touch()
    sys.exit("the first container of this pod fails")
{LISTEN}
"""

#: Listens, and uses more disk space than its limit when /tmp/overfill appears.
OVERFILL_ON_DEMAND: Final = f"""
import pathlib, threading, time
def overfill():
    while not pathlib.Path("/tmp/overfill").exists():
        time.sleep(0.1)
    pathlib.Path("/tmp/ballast").write_bytes(bytes(8 << 20))
threading.Thread(target=overfill, daemon=True).start()
{LISTEN}
"""

#: Connects to each address given and prints, as JSON, the responding pod or the error.
CALL: Final = """
import json, socket, sys
def call(address):
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            return connection.makefile().read()
    except OSError as error:
        return repr(error)
print(json.dumps({address: call(address) for address in sys.argv[1:]}))
"""

#: Connects to all addresses given concurrently and prints, as JSON, those that respond. A network policy drops packets
#: without a response, so only the deadline ends the attempt; it is far above a normal connection.
REACHED: Final = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(address):
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=3) as connection:
            return bool(connection.recv(1))
    except OSError:
        return False
addresses = sys.argv[1:]
with ThreadPoolExecutor(max(1, len(addresses))) as pool:
    print(json.dumps([a for a, open in zip(addresses, pool.map(reached, addresses)) if open]))
"""

#: Resolves each host given and prints, as JSON, its addresses or the error.
RESOLVE: Final = """
import json, socket, sys
def resolve(host):
    try:
        return sorted({info[4][0] for info in socket.getaddrinfo(host, None)})
    except OSError as error:
        return repr(error)
print(json.dumps({host: resolve(host) for host in sys.argv[1:]}))
"""

#: Prints, as JSON, the IPv4 addresses with a connection to the port given, from the kernel's list.
PEERS: Final = """
import json, pathlib, socket, sys
peers = set()
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in pathlib.Path(table).read_text().splitlines()[1:]:
        _, local, remote, state = line.split()[:4]
        if state == "01" and int(local.rpartition(":")[2], 16) == int(sys.argv[1]):
            peers.add(socket.inet_ntoa(bytes.fromhex(remote.partition(":")[0][-8:])[::-1]))
print(json.dumps(sorted(peers)))
"""

#: Waits until the epoch in a file is at least the one given, then prints the file. It gives up after 30 s: without a
#: notification, a kubelet takes 50 s and more, which must not look like delivery.
AWAIT_EPOCH: Final = """
import json, pathlib, sys, time
path, epoch = pathlib.Path(sys.argv[1]), int(sys.argv[2])
end = time.monotonic() + 30
while json.loads(text := path.read_text())["epoch"] < epoch and time.monotonic() < end:
    time.sleep(0.02)
print(text)
"""


#: The securityContext of a container under the Pod Security Standard `restricted`.
HARMLESS: Final = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod_template(image: str, program: str = LISTEN, **container: Any) -> Object:
    """Build a pod template that runs one program and is ready when it listens."""
    return {
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "task",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", program],
                    "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                    **container,
                }
            ],
        }
    }


def listener(image: str, name: str, ports: tuple[int, ...], **labels: str) -> Object:
    """Build a pod outside of a TFCluster that listens."""
    spec = pod_template(
        image,
        command=["python3", "-c", LISTEN_ON, *map(str, ports)],
        readinessProbe={"tcpSocket": {"port": ports[0]}, "periodSeconds": 1},
        ports=[{"name": f"p{port}", "containerPort": port} for port in ports],
    )["spec"]
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def with_scratch(template: Object, **volume: Any) -> Object:
    """Mount an emptyDir at /scratch in a pod template's container; ``volume`` has its further fields."""
    spec = template["spec"]
    spec["volumes"] = [{"name": "scratch", "emptyDir": volume}]
    spec["containers"][0]["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    return template
