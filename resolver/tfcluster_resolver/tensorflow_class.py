"""The subclass of a resolver that is TensorFlow's ClusterResolver as well.

TensorFlow's callers check ``isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)``, and importing the
resolver must not import TensorFlow, which takes seconds.  So the class is plain, and its *instances* are of a subclass
that has TensorFlow's base as well: it is made at the first instantiation, which is early enough because nobody can
check an instance before.  That holds whichever of the two packages was imported first, and for subclasses of users too.
"""

from __future__ import annotations

from typing import Any

from tfcluster_resolver import tensorflow_api

#: The subclass with TensorFlow's base, for each class that was instantiated.
_with_tensorflow: dict[type, type] = {}


def concrete(cls: type) -> type:
    """Give the class that instances of a class are of.

    Args:
        cls: the class with a name in a module.

    Returns:
        Its subclass with TensorFlow's base, or itself where TensorFlow is not installed.
    """
    if not tensorflow_api.is_installed():
        return cls
    base = tensorflow_api.load("TFClusterResolver").distribute.cluster_resolver.ClusterResolver
    if issubclass(cls, base):
        return cls
    if cls not in _with_tensorflow:
        body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
        body["_declared_as"] = cls
        _with_tensorflow[cls] = type(base)(cls.__name__, (cls, base), body)
    return _with_tensorflow[cls]


def declared(cls: type) -> type:
    """Give the class with a name, by which an instance is copied and pickled."""
    found: Any = cls.__dict__.get("_declared_as", cls)
    return found  # type: ignore[no-any-return]  # the class that concrete() was given
