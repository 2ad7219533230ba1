// Package plugin is the CNI plugin "devinfo". It finds the device of a network attachment and keeps the
// attachment's device-info file (Device Information Specification 1.1.0, section 4.2).
//
// The plugin is called in one of three ways, chosen by the configuration: chained (there is a prevResult),
// standalone, or delegating, for which package delegate wraps the verbs of this package. [Plugin] has everything
// that it knows about the node, including all paths.
//
// Each CNI verb has a file, which reads from top to bottom. The steps of ADD are in prepare.go, infofile.go, cdi.go,
// lease.go and record.go, in this order, except takeOver, which is called in prepare.go and is in record.go. Package
// cleanup ends an attachment, for ADD, DEL and GC.
//
// The package may import pkg/core, pkg/host and the library devinfo. Begin reading in add.go.
package plugin
