"""How fast the resolver is in a pod without TensorFlow: ``python -m bench.resolver_speed``.

It prints times and ratios and judges nothing.  Ratios mean more than times on a machine that does other things.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tfcluster_resolver import ClusterSpec, TFClusterResolver, contract, device_filter_matches

ROOT: Final = Path(__file__).resolve().parent.parent
TASKS: Final = 1000
PROGRAMS: Final = {
    "Python's own start": "pass",
    "import tfcluster_resolver": "import tfcluster_resolver",
    "… ClusterSpec": "from tfcluster_resolver import ClusterSpec",
    "… ClusterDeviceFilters": "from tfcluster_resolver import ClusterDeviceFilters",
    "… TFClusterResolver": "from tfcluster_resolver import TFClusterResolver",
    "… connect_to_cluster": "from tfcluster_resolver import connect_to_cluster",
    "… resize": "from tfcluster_resolver import resize",
    "… every public name": "import tfcluster_resolver as t; [getattr(t, name) for name in t.__all__]",
    "import json (to compare)": "import json",
}


def starts(repeats: int = 15) -> dict[str, float]:
    """Measure whole processes, the programs taking turns so that a busy moment hits all of them."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "resolver")}
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(repeats):
        for name, program in PROGRAMS.items():
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-S", "-c", program], env=environment, check=True)
            taken[name].append(time.perf_counter() - begun)
    return {name: min(each) for name, each in taken.items()}


def calls(repeats: int = 50) -> dict[str, tuple[float, float]]:
    """Measure calls on a cluster of TASKS tasks."""
    addresses = [f"worker-{index}.cluster.namespace.svc.cluster.local:2222" for index in range(TASKS - 1)]
    jobs = {"chief": ("chief-0:2222",), "worker": tuple(addresses)}
    view = contract.View(name="c", namespace="n", uid="u", epoch=1, rpc_layer="grpc", jobs=jobs)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / contract.VIEW_FILE).write_text(contract.dump(view), encoding="utf-8")
        resolver = TFClusterResolver(directory=folder)
        spec = resolver.cluster_spec()
        assert spec.num_tasks("worker") == TASKS - 1
        measured: dict[str, Callable[[], object]] = {
            "cluster_spec(), view unchanged": resolver.cluster_spec,
            "cluster_spec(), first call": lambda: TFClusterResolver(directory=folder).cluster_spec(),
            "json.loads of the view (to compare)": lambda: json.loads((Path(folder) / contract.VIEW_FILE).read_bytes()),
            "ClusterSpec(dict)": lambda: ClusterSpec({"chief": ["chief-0:2222"], "worker": addresses}),
            "as_dict()": spec.as_dict,
            "as_cluster_def()": spec.as_cluster_def,
            "device_filter_matches()": lambda: device_filter_matches(
                "/job:ps/task:1", "/job:ps/replica:0/task:1/device:CPU:0"
            ),
        }
        return {name: _times(call, repeats) for name, call in measured.items()}


def _times(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    call()
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken), statistics.median(taken)


def main() -> None:
    """Print both."""
    found = starts()
    own = found["Python's own start"]
    for name, seconds in found.items():
        ratio = seconds / own
        print(f"{name:36} {seconds * 1e3:8.1f} ms  +{(seconds - own) * 1e3:6.1f} ms  {ratio:5.2f} x Python's start")
    print(f"\non a cluster of {TASKS} tasks")
    for name, (least, median) in calls().items():
        print(f"{name:36} {least * 1e3:8.3f} ms  (median {median * 1e3:.3f} ms)")


if __name__ == "__main__":
    main()
