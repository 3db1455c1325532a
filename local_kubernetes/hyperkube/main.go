// Command hyperkube puts every program of the test cluster into one file: they share most of
// their packages, so one binary is a third of the size of six and is linked once.
//
// The program to be is the first argument or, through a symbolic link, the name it is called by.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	_ "time/tzdata" // CronJobs may name a time zone, and a bare machine has no zone files

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs builds each command only when it is asked for: the constructors register flags and
// feature gates for the whole process, and a second one would register the same names again.
var programs = map[string]func() int{
	"etcd":                    runEtcd,
	"fake-gpu-plugin":         runFakeGPUPlugin,
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-proxy":              component(proxy.NewProxyCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 runKubectl,
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func main() {
	run, called := programs[filepath.Base(os.Args[0])]
	if !called && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		run, called = programs[os.Args[0]]
	}
	if !called {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		fmt.Fprintf(os.Stderr, "usage: hyperkube PROGRAM ARGUMENT...\nprograms: %s\n", strings.Join(names, " "))
		os.Exit(2)
	}
	os.Exit(run())
}

func component(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // exits with the code that belongs to the error
	}
	return 0
}

// runEtcd serves a cluster of one member whose data need not survive the machine. It has flags of
// its own: etcd's reach embed.Config only through etcd's own main package.
func runEtcd() int {
	config := embed.NewConfig()
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	flags.StringVar(&config.Dir, "data-dir", "", "folder of the data")
	clients := flags.String("client-url", "", "URL for the API server")
	peers := flags.String("peer-url", "", "URL for other members, of which there are none")
	_ = flags.Parse(os.Args[1:]) // ExitOnError: does not return an error
	clientURLs, err := types.NewURLs([]string{*clients})
	if err != nil {
		fmt.Fprintln(os.Stderr, "--client-url:", err)
		return 2
	}
	peerURLs, err := types.NewURLs([]string{*peers})
	if err != nil {
		fmt.Fprintln(os.Stderr, "--peer-url:", err)
		return 2
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = clientURLs, clientURLs
	config.ListenPeerUrls, config.AdvertisePeerUrls = peerURLs, peerURLs
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	// NewConfig leaves the threshold at zero, which would log every request as a slow one.
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd did not start:", err)
		return 1
	}
	defer server.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	select {
	case <-ctx.Done():
		return 0
	case err := <-server.Err():
		fmt.Fprintln(os.Stderr, "etcd failed:", err)
		return 1
	}
}
