"""What ``python -m tfcluster_resolver`` does inside a pod: one module a command."""
