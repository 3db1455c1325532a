// Command older-kubernetes is the control plane of an older Kubernetes, for tests of the operator on
// it: the programs whose answers differ between minors. etcd is that of ../hyperkube.
//
// The program to be is the first argument. The version is that of the .mod file it is built with.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs may name a time zone, and a bare machine has no zone files

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// commands makes each command only when it is asked for: the constructors register flags and
// feature gates for the whole process, and a second one would register the same names again.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) > 1 {
		if command, known := commands[os.Args[1]]; known {
			os.Args = os.Args[1:]
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: older-kubernetes kube-apiserver|kube-controller-manager|kube-scheduler ARGUMENT...")
	os.Exit(2)
}
