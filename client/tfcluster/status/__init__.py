"""The state of TFClusters and their tasks, as values, text and documents."""
