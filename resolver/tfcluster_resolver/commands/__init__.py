"""The commands of ``python -m tfcluster_resolver`` inside a pod."""
