// Package plugin is the CNI plugin "devinfo". It finds the device of a network attachment and keeps the
// attachment's device-info file (Device Information Specification 1.1.0, section 4.2).
//
// The plugin is called in one of three ways, chosen by the configuration: chained (there is a prevResult),
// standalone, or delegating, for which package delegate wraps the verbs of this package. [Plugin] has everything
// that it knows about the node, including all paths.
//
// Each CNI verb has a file, which reads from top to bottom. Package delegate receives every call; without delegates it
// calls the verb of this package at once. Do runs the steps of ADD and undoes them: Prepare reads the request and the
// device-info file, and deals with a former ADD (takeOver); Attach finds the device, decides what containers get, and
// commits, which records the attachment before it writes files; Print writes the result. Package cleanup ends an
// attachment, for ADD, DEL and GC.
//
// The package may import pkg/core, pkg/host and the library devinfo. Begin reading in add.go.
package plugin
