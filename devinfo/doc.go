// Package devinfo reads, checks, merges and writes device information: the JSON
// by which device plugins, CNI plugins, Multus and workloads tell each other
// which device backs a network attachment. It is defined by the Device
// Information Specification 1.1.0 of the Network Plumbing Working Group; the
// section numbers in this package are that document's.
//
// A consumer calls [ReadFile]. A writer calls [Parse] on what is there, [Merge]
// with what it knows, and [Info.Encode]. Keys that this package does not know
// survive that way with their values byte for byte, and so do known keys whose
// value is of the wrong type: only [Info.Validate] complains about those.
//
// The package uses the standard library only and writes no files: that is the
// work of devinfo/store. It is not for the network-status annotation as a whole,
// only for the device-info map in it (section 6.1).
package devinfo
