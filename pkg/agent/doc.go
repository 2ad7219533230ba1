// Package agent is the node agent of the devinfo plugin. It keeps the plugin and its settings on the node
// (package install), removes the state left by dead sandboxes and previous boots, gives containers their
// device information (package inject), and exports metrics about attachments to Prometheus. When a
// component fails, the others continue. The agent logs changes of a component's health and shows it in
// /healthz and the metrics. It does not use the Kubernetes API.
//
// It may import pkg/core, pkg/host and the library devinfo. Begin reading in agent.go.
package agent
