"""From a TFJob of Kubeflow to a TFCluster: what becomes of each field, and what is lost.  All modules here are pure.

The behaviour of TFJob is from its source (kubeflow/training-operator, v1.9.4, and the branches before it).
"""
