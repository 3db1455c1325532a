"""Programs for pods with TensorFlow: each is the text of one module, run with ``python3 -c`` in a task's pod."""

from typing import Any, Final

from support.objects import Object

#: Sleeps until it must end; tests run their programs next to it.
IDLE: Final = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    signal.pause()
"""

#: Runs a training program until it ends or /tmp/end has an exit code for an early end.
END_AMID: Final = """
import os, pathlib, runpy, sys, threading, time
order = pathlib.Path("/tmp/end")
def end():
    while not (text := order.read_text().strip() if order.exists() else ""):
        time.sleep(0.05)
    os._exit(int(text))
threading.Thread(target=end, daemon=True).start()
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def stock_template(image: str, *, grace: int = 1, **container: Any) -> Object:
    about = {"name": "tensorflow", "image": image, "imagePullPolicy": "IfNotPresent"}
    return {"spec": {"terminationGracePeriodSeconds": grace, "containers": [{**about, **container}]}}


def with_folder(template: Object, *, node: str) -> Object:
    """Mount the folder /kept of a node in a pod template's container; it outlives the pod and all pods share it."""
    spec = template["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["volumes"] = [{"name": "kept", "hostPath": {"path": "/tmp", "type": "Directory"}}]  # noqa: S108 - the node's
    spec["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    return template
