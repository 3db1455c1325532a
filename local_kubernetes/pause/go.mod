module tfcluster.dev/local-kubernetes/pause

go 1.26.0
