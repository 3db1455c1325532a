"""TFClusters from a shell and from Python: the command ``tfcluster`` and its client."""
