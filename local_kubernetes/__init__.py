"""A real Kubernetes on this machine, for tests and demonstrations; see README.md in this folder.

It decides nothing about TensorFlow clusters, and the operator and the resolver never import it.
"""
