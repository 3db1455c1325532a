"""Manifests: reading files, judging them as the API server does, and building TFClusters from Python."""
