"""From a TFJob of Kubeflow to a TFCluster: what becomes of each field, and what is lost.

``conversion`` converts one object and is pure, as are all modules here: texts and objects in, texts and objects out.
``documents`` does the same for a YAML file; ``check`` compares what both tell each replica.
The behaviour of TFJob is from its source (kubeflow/training-operator, v1.9.4, and the branches before it).
"""
