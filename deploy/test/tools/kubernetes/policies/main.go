// Enforces the network policies of a node's pods with the corresponding part of kube-router.
package main

import (
	"flag"
	"log"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	kubeconfig := flag.String("kubeconfig", "", "the API server, and an account that may read pods, namespaces and policies")
	flag.StringVar(&config.HostnameOverride, "node", "", "name of the node")
	flag.StringVar(&config.ClusterIPCIDRs[0], "services", config.ClusterIPCIDRs[0], "addresses of Services")
	flag.Parse()
	log.Fatal(enforce(config, *kubeconfig))
}

// enforce returns only with an error.
func enforce(config *options.KubeRouterConfig, kubeconfig string) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &mutex, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	// The health reports are not used, but the controller waits until they are received.
	health := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range health {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(health, stop, &running)
	return nil
}
