"""What the operator would do: with a new TFCluster (render), or with an edit of one that runs (diff)."""
