//go:build !linux

package validate

// classes are not read: package cniconfig needs Linux, and kubectl devinfo checks networks only.
type classes struct{}

func classesIn([]Document) (none classes) { return none }

func (Checker) parameters(d *Document) {
	d.Skipped = "parameters for cni-dra-driver are checked on Linux only"
}
