// Enforces the NetworkPolicies of a cluster on this Linux node, by Azure's Network Policy Manager (NPM).
//
// It puts NPM's packages together as NPM's own `start` command does, less what needs Azure: without an account for
// telemetry that command waits for three minutes before it reads the first policy.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/Azure/azure-container-networking/common"
	"github.com/Azure/azure-container-networking/npm"
	npmconfig "github.com/Azure/azure-container-networking/npm/config"
	"github.com/Azure/azure-container-networking/npm/pkg/dataplane"
	"github.com/Azure/azure-container-networking/npm/pkg/dataplane/ipsets"
	"github.com/Azure/azure-container-networking/npm/pkg/dataplane/policies"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/exec"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "credentials that read pods, namespaces and network policies")
	node := flag.String("node", "", "the node's name")
	flag.Parse()
	stop, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	if err := enforce(stop, *kubeconfig, *node); err != nil {
		log.Fatal(err)
	}
	<-stop.Done()
}

func enforce(stop context.Context, kubeconfig, node string) error {
	credentials, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(credentials)
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	settings := &dataplane.Config{
		IPSetManagerCfg: &ipsets.IPSetManagerCfg{IPSetMode: ipsets.ApplyAllIPSets},
		PolicyManagerCfg: &policies.PolicyManagerCfg{
			PolicyMode: policies.IPSetPolicyMode,
			// kube-proxy accepts on its own what it has marked: the policies must judge before it.
			PlaceAzureChainFirst: true,
		},
	}
	// From here on the node's chains and sets of an earlier run are gone.
	plane, err := dataplane.NewDataPlane(node, common.NewIOShim(), settings, stop.Done())
	if err != nil {
		return err
	}
	plane.RunPeriodicTasks()
	informer := informers.NewSharedInformerFactory(client, 0)
	manager := npm.NewNetworkPolicyManager(npmconfig.DefaultConfig, informer, plane, exec.New(), "", version)
	return manager.Start(npmconfig.DefaultConfig, stop.Done())
}
