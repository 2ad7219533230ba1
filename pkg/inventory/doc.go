// Package inventory decides which of a node's network devices are offered by Dynamic
// Resource Allocation, and as what: values in, values out.
//
//	host  := Live(sys)                       // or Captured(file)
//	list  := Read(host)                      // all devices, with their attributes
//	rules := ParseRules(configuration)       // what the administrator names
//	all   := Decide(list, rules, situation)  // each device: offered, or why not
//	pool  := Slices(all, held)               // what is published
//
// Nothing is offered that no rule names. A device that a claim holds stays published as
// it last was, so that a pod's start and end leave the ResourceSlices alone.
package inventory
