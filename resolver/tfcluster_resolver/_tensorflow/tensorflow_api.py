"""The parts of TensorFlow that are used, and the registration of our resolver as one of TensorFlow's.

Nothing here imports TensorFlow before a call needs it: the import takes seconds, and the package must work without it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from tfcluster_resolver.errors import TensorFlowNotFoundError

_TENSORFLOW: Final = "tensorflow"


def is_installed() -> bool:
    """Return whether this Python can import TensorFlow, without importing it."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except ValueError:  # a test's double in its place
        return False
    # A folder of that name on the path is found too, as a namespace package, without an origin.
    return spec is not None and spec.origin is not None


def load(purpose: str) -> Any:
    """Import TensorFlow, or raise TensorFlowNotFoundError."""
    if not is_installed():
        raise TensorFlowNotFoundError(
            f"{purpose} needs TensorFlow, which {sys.executable} cannot import: "
            "use an image that has it, or `pip install tensorflow`"
        )
    return importlib.import_module("tensorflow")


def device_filters(declared: Mapping[str, Mapping[int, Sequence[str]]], purpose: str) -> Any:
    filters = load(purpose).config.experimental.ClusterDeviceFilters()
    for job, tasks in declared.items():
        for index, texts in tasks.items():
            filters.set_device_filters(job, index, list(texts))
    return filters


def visible_gpus() -> int | None:
    """Count the GPUs that TensorFlow can use in this process; None if it is not imported yet."""
    config: Any = getattr(sys.modules.get("tensorflow"), "config", None)
    if not hasattr(config, "get_visible_devices"):  # not imported, or only half
        return None
    return len(config.get_visible_devices("GPU"))


# The connection of this process and its objects there: TensorFlow does not have a public API for them.


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection of this process's runtime, its own task, and the message with its filters."""

    spec: Any
    job: str
    index: int
    filters: Any


def connected_to(jobs: Collection[str] = ()) -> Connection | None:
    """Return the connection of this process's runtime, whichever call opened it."""
    # TensorFlow adds the own job to its ClusterDef, with its own address; leave it out if ``jobs``, the other side of
    # the comparison, does not have it.
    server = importlib.import_module("tensorflow.python.eager.context").get_server_def()
    if server is None:
        return None
    jobs_there = {
        job.name: dict(job.tasks) for job in server.cluster.job if job.name in jobs or job.name != server.job_name
    }
    spec = load("comparing clusters").train.ClusterSpec(jobs_there)
    return Connection(spec, server.job_name, server.task_index, server.cluster_device_filters)


def is_running() -> bool:
    """Return whether this process's runtime has started, so that tensors can exist."""
    return bool(importlib.import_module("tensorflow.python.eager.context").context()._initialized)  # noqa: SLF001 - no public way


def held_elsewhere(job: str, *, variables_only: bool = False) -> list[str]:
    """List this process's tensors and variables on other jobs, such as "variable w:0 on /job:ps/.../device:CPU:0"."""
    tensorflow = load("looking for tensors")
    tensor_kind = importlib.import_module("tensorflow.python.framework.ops").EagerTensor
    gc.collect()
    found = []
    for one in gc.get_objects():
        kind = type(one)  # not isinstance(), which asks lazy modules and proxies for their __class__
        is_variable = issubclass(kind, tensorflow.Variable)
        if not is_variable and not issubclass(kind, tensor_kind):
            continue
        if variables_only and not is_variable and one.dtype != tensorflow.resource:
            continue
        device = one.device
        if device and f"/job:{job}/" not in device:
            found.append(f"variable {one.name} on {device}" if is_variable else f"a tensor on {device}")
    return sorted(found, key=lambda text: (text.startswith("a tensor"), text))


def current_device() -> str:
    """Name the device of the ``tf.device`` scope that this thread is in; empty outside of any."""
    return importlib.import_module("tensorflow.python.eager.context").context().device_name or ""


def register(cls: type) -> None:
    """Make a class a subclass of TensorFlow's ClusterResolver, now or when TensorFlow is imported."""
    # TensorFlow's callers check isinstance() with that abstract base class, and other classes can be registered as its
    # subclasses: at the end of TensorFlow's import, before the program can ask.
    finder = _Finder(cls)
    # Install the finder before the check: another thread can import TensorFlow in between.
    sys.meta_path.insert(0, finder)
    if sys.modules.get(_TENSORFLOW) is not None:  # None bars an import
        with contextlib.suppress(ImportError):
            finder.imported(importlib.import_module(_TENSORFLOW))  # waits for the thread that imports it now


class _Finder:
    """Has the loader of TensorFlow report when TensorFlow is loaded."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _TENSORFLOW or self not in sys.meta_path:
            return None
        for other in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = other.find_spec(name, path, target)
            if spec is not None:
                self._listen_to(spec.loader)
                return spec
        return None

    def _listen_to(self, loader: Any) -> None:
        """Put a method in front of the loader's own for one call: this loader is of this one import."""
        execute = getattr(loader, "exec_module", None)
        if execute is None:  # a folder without code
            return

        def execute_and_tell(module: ModuleType) -> None:
            # If this module was loaded twice, each has put one in front, and the first removes it.
            vars(loader).pop("exec_module", None)
            execute(module)
            self.imported(module)

        loader.exec_module = execute_and_tell

    def imported(self, tensorflow: Any) -> None:
        """Register the class and stop listening, unless TensorFlow is not whole (yet)."""
        resolvers: Any = getattr(getattr(tensorflow, "distribute", None), "cluster_resolver", None)
        if hasattr(resolvers, "ClusterResolver"):
            resolvers.ClusterResolver.register(self._cls)
            sys.meta_path.remove(self)
