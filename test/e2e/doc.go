// Package e2e tests cni-dra-driver, and devinfo with Multus, in a real cluster, with real
// pods: make test-e2e.
//
// With KUBECONFIG it is that cluster, on which the driver must be installed as docs/dra/README.md
// says; the tests make namespaces and DeviceClasses that begin with "e2e-". They attach
// pods to macvlan networks on the nodes' interface E2E_MASTER (eth0), whose image is
// E2E_IMAGE (cluster.local/pod-view:1): the program test/e2e/pod-view alone, as /pod-view.
// E2E_NODE is a command that runs another one on the node, such as "ssh root@node1", for a
// cluster of one node: the tests that look at the node, run crictl there or kill its programs
// need it. There must be room for 100 pods.
//
// Without KUBECONFIG, E2E_CLUSTER is a program that makes a cluster of one node, which has
// the verbs up (prints the path of a kubeconfig), node COMMAND..., image NAME FILE... (makes
// cluster.local/NAME:1 of static programs) and multus (puts Multus before the node's CNI
// network, as /etc/cni/net.d/00-multus.conf). There each test installs what it is about. Below
// each are its files: its own, then those of its scenarios, then those of stand-ins:
//
//	TestAsAProcess                        cni-dra-driver as a process of the node: all scenarios
//	TestAsADaemonSet                      by docs/dra/README.md: those that the installation matters to
//	    main, agent; network, promises, sandbox
//	TestWithTheNodesDevices               it offers a captured host's devices: docs/dra/from-device-plugin.md
//	    nodedevices; scheduled, requests, migration
//	TestADaemonSetOffersTheNodesDevices   the DaemonSet offers a bridge
//	    nodedevices
//	TestWithMultus                        the devinfo plugin, with Multus and a device plugin
//	    multus; deviceplugin
//	TestWithTheAgent                      devinfo-agent, by the manifests and commands of docs/install.md
//	    nodeagent; injection, runtimerequires, examples, applications, fiftypods
//	TestWithTheChart                      both agents, by Helm
//	    chart
//	TestWithRealDevices                   both agents, by Helm, on the machine of test/vm: make test-vm-e2e
//	    realdevices; realfaults
//	TestInTheDefaultNetwork               devinfo in the network of all pods
//	    defaultnetwork
//
// The rest is for all of them: node (commands on the node), objects (what is made in the
// cluster), examples (those, and commands of the documentation). E2E_PATIENCE multiplies how long the tests
// wait, for a node that is emulated. With E2E_MEASURE=1 TestInTheDefaultNetwork makes more
// sandboxes, and fails if they take more than 1.05 times as long as without devinfo, on a machine
// that does nothing else.
//
// The cluster stays up for the next run; its own verb, down, ends it. It inherits the
// environment of the tests, such as RUNTIME=crio.
//
// Run as a process the driver has these flags in addition to those of the DaemonSet:
// --allow-claim-config=macvlan,host-local.
package e2e
