"""The same cluster on this machine: the operator's engine, an API server in memory, and tasks that are processes."""
