"""The logs of many tasks in one stream, over restarts."""
