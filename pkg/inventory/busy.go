package inventory

import "fmt"

// Busy says why a device of the host cannot be taken from its driver now; "" = it can. That
// goes beyond [Decide]: a plugin that moves an interface leaves it what it is.
func Busy(h Host, name string) (string, error) {
	devices, _, err := Read(h)
	if err != nil {
		return "", err
	}
	var d *Device
	var on []string
	for n := range devices {
		if devices[n].Name == name {
			d = &devices[n]
		}
		if devices[n].On == name {
			on = append(on, devices[n].Name)
		}
	}
	switch {
	case d == nil:
		return "the node has lost it", nil
	case d.UsedByHost() != "":
		return d.UsedByHost(), nil
	case len(on) > 0:
		return fmt.Sprintf("it has %s on it: they would lose their parent", count(on)), nil
	case d.moved() && d.Driver != "":
		return "it has no interface here, as if it were in another network namespace", nil
	case d.IfName == "":
		return "", nil
	}
	for _, l := range h.Links {
		if l.Link == d.IfName {
			return fmt.Sprintf("%s is on %s", l.Name, d.IfName), nil
		}
	}
	if d.HostUse != "" {
		return "the host uses it: " + d.HostUse, nil
	}
	return "", nil
}

func count(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d devices", len(names))
}
