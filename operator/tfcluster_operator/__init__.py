"""The operator of TFCluster: begin with :mod:`tfcluster_operator.engine.reconcile`."""

from tfcluster_resolver import __version__

__all__ = ["__version__"]
