// The go command wants a go.mod where the module's root is. What is built is said by -modfile:
// 1.36.mod and so on, one for each older Kubernetes.
module tfcluster.dev/local-kubernetes/older

go 1.24.0
