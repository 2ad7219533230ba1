// Package plugin is the CNI plugin "devinfo". It finds the device of a network attachment and keeps the
// attachment's device-info file (Device Information Specification 1.1.0, section 4.2).
//
// The plugin is called in one of three ways, chosen by the configuration: chained (there is a prevResult),
// delegating (it runs the plugins in "delegates"), or standalone. [Plugin] has everything that it knows
// about the node, including all paths.
//
// Each CNI verb has a file, which reads from top to bottom. The steps of ADD are in request.go, infofile.go,
// delegates.go, cdi.go, lease.go and record.go, in this order, except takeOver, the step after request.go, which is in
// record.go. cleanup.go ends an attachment, for ADD, DEL and GC.
//
// The package may import pkg/core, pkg/host and the library devinfo. Begin reading in add.go.
package plugin
