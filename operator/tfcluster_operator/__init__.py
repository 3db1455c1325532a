"""The operator of TFCluster: it materialises TensorFlow clusters on Kubernetes.

The story is told in :mod:`tfcluster_operator.reconcile`; what is decided is decided in :mod:`tfcluster_operator.model`.
"""

from tfcluster_resolver import __version__

__all__ = ["__version__"]
