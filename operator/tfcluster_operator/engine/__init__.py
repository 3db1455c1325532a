"""The engine: one queue for every cause, and the reconcile that it feeds."""
