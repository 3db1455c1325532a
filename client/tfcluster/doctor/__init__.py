"""`tfcluster doctor`: what is wrong with the installation or a TFCluster, and what to do."""
