package restore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/process"
)

// Alone returns an error if something receives the frames of the interface of a device, such as a macvlan that an earlier
// pod left on it. It looks in other network namespaces only if this process has not restored or looked at the device.
func (d *Devices) Alone(f Snapshot) error {
	if f.IfName == "" {
		return nil
	}
	i, err := d.links.Interface("", f.IfName)
	if err != nil {
		return err
	}
	alone, _ := d.alone.Load(f.Device)
	found, err := d.links.Stacked(i, alone != true)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("interface %s: %s: remove it, or end the process that keeps its network namespace", f.IfName, receive(found))
	}
	d.alone.Store(f.Device, err == nil)
	return err
}

func receive(found []string) string {
	return strings.Join(found, ", ") + " would receive the frames of the next pod"
}

// references removes the interfaces on the device, and returns what still refers to it: interfaces that receive its frames,
// and processes of pods that have it open.
func (d *Devices) references(now present, bound bool, tried map[string]error) (list []setting, err error) {
	if bound {
		return nil, nil
	}
	add := func(what, values string, err error) {
		list, tried[what] = append(list, setting{what: what, values: values}), err
	}
	if now.IfName != "" {
		left, err := d.links.Unstack(now.is)
		switch {
		case errors.Is(err, link.ErrNoInterface):
			return nil, fmt.Errorf("%s, %s: %w", now.Device, now.IfName, ErrNotOnNode)
		case len(left) > 0:
			add(Stacked, receive(left), cmp.Or(err, errors.New("end the process that keeps its network namespace; reset: always in the rule removes it after later pods only")))
		case err != nil:
			return nil, err
		}
	}
	numbers, unknown := d.sys.NodeNumbers(now.Bus, now.Device)
	holders, err := d.links.Holders(numbers)
	holders = slices.DeleteFunc(holders, func(h process.Holder) bool { return !h.Pod })
	if len(holders) > 0 {
		add(Opened, fmt.Sprintf("%v has its device node open", holders[0]), errors.New("end that process"))
	}
	return list, cmp.Or(unknown, err)
}
