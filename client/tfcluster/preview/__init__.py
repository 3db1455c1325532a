"""Preview the operator's actions: for a new TFCluster (render), or for an edit of an existing one (diff)."""
