// Package e2e tests cni-dra-driver, and devinfo with Multus, in a real cluster, with real
// pods: make e2e.
//
// With KUBECONFIG it is that cluster, on which the driver must be installed as docs/dra.md
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
// network, as /etc/cni/net.d/00-multus.conf). There the tests install the driver themselves:
// as a process of the node, then by the commands of docs/dra.md; and once more as a process
// that offers a captured host's VFs and NICs to the scheduler, by which the steps of
// docs/from-device-plugin.md are gone through. After that they test the
// devinfo plugin with Multus and with a device plugin of their own, which offers the node's
// network card as a resource; then devinfo-agent, by the manifests and commands of
// docs/install.md, and by Helm; then devinfo in the network of all pods. There E2E_MEASURE=1
// makes more sandboxes, and fails the tests if they take more than 1.05 times as long, on a
// machine that does nothing else.
// The cluster stays up for the next run; its own verb, down, ends it. It inherits the
// environment of the tests, such as RUNTIME=crio.
//
// Run as a process the driver has these flags in addition to those of the DaemonSet:
// --allow-claim-config=macvlan,host-local.
package e2e
