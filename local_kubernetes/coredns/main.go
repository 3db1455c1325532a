// Command coredns is CoreDNS with the plug-ins of our Corefile (node_files.py) and no others: the stock one has sixty,
// and the clients of three clouds with them.
//
// Its go.mod names hyperkube's versions of what both need, so that Go compiles those packages once.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	coremain.Run()
}
