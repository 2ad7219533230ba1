// Package e2e tests cni-dra-driver, and devinfo with Multus, with real pods in a real cluster: make test-e2e.
//
// With KUBECONFIG the tests use that cluster. The driver must be installed there with kustomize. The
// tests create namespaces and DeviceClasses whose names begin with "e2e-". They attach pods to macvlan networks on the
// nodes' interface E2E_MASTER (eth0). The pods' image is E2E_IMAGE (cluster.local/pod-view:1), which contains only the
// program test/e2e/pod-view as /pod-view. On a cluster of one node E2E_NODE may be a command that runs another command
// on the node, such as "ssh root@node1". Tests need it if they read the node's files, run crictl, or kill programs. The
// cluster must have room for 100 pods.
//
// Without KUBECONFIG the program E2E_CLUSTER creates a cluster of one node. It has the verbs up (prints the path of a
// kubeconfig), node COMMAND..., image NAME FILE... (creates cluster.local/NAME:1 from static programs) and multus (puts
// Multus before the node's CNI network, as /etc/cni/net.d/00-multus.conf). In this cluster each test installs the
// programs that it needs. The list below has each test with its files: its own, then those of its scenarios, then those
// of replacement programs:
//
//	TestDriverAsProcess              cni-dra-driver as a process of the node: all scenarios
//	TestDriverAsDaemonSet            installed with kustomize: scenarios that depend on the installation
//	    main, agent; network, promises, sandbox, slow, metadata
//	TestDriverOffersCapturedDevices  offers a captured host's devices: docs/dra/from-device-plugin.md
//	    nodedevices; migration
//	TestAgentInstallation            devinfo-agent, installed by the manifests and commands in docs/kustomize.md
//	    nodeagent; injection, examples, multus, fiftypods; deviceplugin
//	TestChartInstallation            devinfo-agent, installed with Helm
//	    chart
//	TestRealDevices                  both agents with Helm, on the machine of test/vm: make test-e2e E2E=qemu
//	    realdevices; realfaults
//	TestDevinfoInDefaultNetwork      devinfo in the network of all pods
//	    defaultnetwork
//	TestPodsStartWithinLimits        times of pods with and without our programs: make bench BENCH=pods
//	    podstart
//	TestPodsOverSlowNetworks         the same with networks of 0.2, 1 and 3 s
//	    slow
//
// All tests use these files: node (commands on the node), objects (objects in the cluster), examples (those, and
// commands in the documentation). E2E_PATIENCE multiplies the time limits, for an emulated node.
//
// The cluster keeps running for the next test run, until its verb down ends it. It inherits the environment of the
// tests, such as RUNTIME=crio.
package e2e
