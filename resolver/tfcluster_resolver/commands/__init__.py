"""What ``python -m tfcluster_resolver`` does inside a pod: one module a command, with its words and its exit codes.

``serve`` and ``tf_config`` are Python functions as well, which the package shows beside the commands.
"""
