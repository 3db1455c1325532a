"""The state of TFClusters and their tasks, as values and text."""
