// The DNS of a cluster: CoreDNS, with only the plugins that its Corefile in deploy/test/cluster_node.py names.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// In the order in which they handle a query.
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
