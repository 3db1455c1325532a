"""What makes a class TensorFlow's ClusterResolver, without importing TensorFlow.

TensorFlow's callers check ``isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)``, and importing the
resolver must not import TensorFlow, which takes seconds.  TensorFlow's class is an abstract base class, of which others
can be registered as subclasses.  That is done at once where TensorFlow is imported already, and else at the end of its
import, before the program can ask: a finder on ``sys.meta_path`` waits for it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_TENSORFLOW: Final = "tensorflow"


def register(cls: type) -> None:
    """Make a class a subclass of TensorFlow's ClusterResolver, now or when TensorFlow is imported.

    Args:
        cls: a class with all that TensorFlow's has; its instances and subclasses count too, also those made before.
    """
    finder = _Finder(cls)
    # NB: first the finder, then the look: another thread may begin to import TensorFlow in between.
    sys.meta_path.insert(0, finder)
    if sys.modules.get(_TENSORFLOW) is not None:  # None bars an import
        with contextlib.suppress(ImportError):
            finder.imported(importlib.import_module(_TENSORFLOW))  # waits for the thread that imports it now


class _Finder:
    """Finds nothing itself: it has the loader of TensorFlow say when TensorFlow is loaded."""

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
            del loader.exec_module
            execute(module)
            self.imported(module)

        loader.exec_module = execute_and_tell

    def imported(self, tensorflow: Any) -> None:
        """Register the class and listen no longer, unless that is no whole TensorFlow (yet)."""
        resolvers: Any = getattr(getattr(tensorflow, "distribute", None), "cluster_resolver", None)
        if hasattr(resolvers, "ClusterResolver"):
            resolvers.ClusterResolver.register(self._cls)
            sys.meta_path.remove(self)
