// Package devinfo reads, validates, merges and writes device information: JSON that describes the device behind
// a network attachment. Device plugins, CNI plugins, Multus and workloads exchange it in files and in the
// network-status annotation. The format is the Device Information Specification 1.1.0 of the Network Plumbing
// Working Group. Section numbers in this package refer to it.
//
// A consumer calls [ReadFile]. A writer calls ReadFile, [Merge] with its own facts, and [WriteFile]. This keeps unknown
// keys byte for byte. [Parse], Merge and [Info.Encode] also keep known keys whose value has the wrong JSON type; only
// [Info.Validate] reports them.
//
// The package imports only the standard library. Of the network-status annotation it reads only the device-info map
// (section 6.1).
package devinfo
