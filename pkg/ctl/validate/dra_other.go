//go:build !linux

package validate

// classes is unused here. Package cniconfig needs Linux, and kubectl devinfo checks only networks.
type classes struct{}

// tooLong needs the journal's rule for names, which is for Linux only.
func tooLong(string) string { return "" }

func classesIn([]Document) (none classes) { return none }

func (Checker) parameters(d *Document) {
	d.Skipped = "parameters for cni-dra-driver are checked on Linux only"
}
