// Package devinfo is the CNI plugin "devinfo". It finds the device of a network attachment and keeps the
// attachment's device-info file (Device Information Specification 1.1.0, section 4.2).
//
// The plugin is called in one of three ways, chosen by the configuration: chained (there is a prevResult),
// standalone, or delegating, when it runs other plugins itself. [Host] is all that it knows of the node, [Call] one call.
//
// Each CNI verb has a file, which reads from top to bottom. ADD goes from value to value: read makes a request, the
// delegates, if there are any, another one, decide a plan, and commit carries it out. What has been done is on a stack of
// inverses, for the case that a later step fails. Package cleanup ends an attachment, for ADD, DEL and GC.
//
// The package may import pkg/core, pkg/host and the library devinfo. Begin reading in add.go.
package devinfo
