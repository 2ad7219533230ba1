package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/link"
)

var (
	errPermission = fs.ErrPermission
	errReadOnly   = syscall.EROFS
)

// What a device on the command line can be.
const (
	asPCI       = "pci"
	asAuxiliary = "auxiliary"
	asVDPA      = "vdpa"
	asInterface = "interface"
)

var kinds = []string{asPCI, asAuxiliary, asVDPA, asInterface}

var kindWords = map[string]string{asPCI: "PCI function", asAuxiliary: "auxiliary device", asVDPA: "vDPA device", asInterface: "interface"}

// settle says what the name is: what --as says, or else the one thing of that name.
// With --netns only an interface is meant.
func (h *host) settle(s subject) (string, error) {
	if s.netns != "" {
		if s.as != "" && s.as != asInterface {
			return "", usage("leave one of the two out", "--netns is for interfaces, but --as says %s", s.as)
		}
		return asInterface, nil
	}
	is, err := h.meanings(s.name)
	if err != nil {
		return "", h.explained(err)
	}
	switch {
	case len(is) == 0:
		return "", h.unknown(s)
	case s.as == "" && len(is) > 1:
		return "", usage("say which: --as "+strings.Join(is, ", or --as "), "%s is the name of several devices", s.name)
	case s.as == "" || slices.Contains(is, s.as):
		return cmp.Or(s.as, is[0]), nil
	}
	return "", usage("leave --as out, or say --as "+is[0], "%s: no %s has that name", s.name, kindWords[s.as])
}

// meanings lists the kinds of devices that have the name.
func (h *host) meanings(name string) (is []string, err error) {
	if a, err := pci.Parse(name); err == nil {
		_, ok, err := h.sys.PCI(a)
		return meaning(nil, asPCI, ok, err)
	}
	_, ok, err := h.sys.Auxiliary(name)
	if is, err = meaning(is, asAuxiliary, ok, err); err != nil {
		return nil, err
	}
	_, ok, err = h.sys.VDPA(name)
	if is, err = meaning(is, asVDPA, ok, err); err != nil {
		return nil, err
	}
	_, err = h.finder.Interfaces.Interface("", name)
	if errors.Is(err, link.ErrNoInterface) {
		return is, nil
	}
	return meaning(is, asInterface, true, err)
}

func meaning(is []string, kind string, ok bool, err error) ([]string, error) {
	if ok && err == nil {
		is = append(is, kind)
	}
	return is, err
}

// unknown is the error for a device that does not exist.
func (h *host) unknown(s subject) error {
	if s.netns != "" {
		return blind(fmt.Errorf("%s: no interface of that name in %s", s.name, s.netns), "ip -n NAME link shows the interfaces of a network namespace")
	}
	remedy := "devinfoctl topology shows the node's devices; an interface in a pod needs --netns"
	if names := nearest(s.name, h.deviceNames()); len(names) > 0 {
		remedy = "the nearest names are " + strings.Join(names, ", ") + "; " + remedy
	}
	return blind(fmt.Errorf("%s: no %s of that name", s.name, cmp.Or(kindWords[s.as], "device")), remedy)
}

// deviceNames lists what can be inspected. What cannot be read is left out: the list
// is for hints.
func (h *host) deviceNames() (names []string) {
	functions, _ := h.sys.Functions()
	for _, fn := range functions {
		names = append(names, fn.Address.String())
	}
	auxiliaries, _ := h.sys.Auxiliaries()
	for _, aux := range auxiliaries {
		names = append(names, aux.Name)
	}
	vdpas, _ := h.sys.VDPAs()
	for _, v := range vdpas {
		names = append(names, v.Name)
	}
	netdevs, _ := h.sys.Netdevs()
	for _, d := range netdevs {
		names = append(names, d.Name)
	}
	return names
}

// completeDevices completes a device's name.
func (t *tool) completeDevices(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := t.host()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return h.deviceNames(), cobra.ShellCompDirectiveNoFileComp
}
