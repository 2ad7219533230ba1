package attachment

import (
	"encoding/json"
	"strings"

	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/config"
)

// CDI is the configuration's "cdi", with placeholders filled in.
type CDI struct {
	Kind, Name string // of the CDI device
	SocketDir  string // the host's directory of the socket; "" = the path is the same on both sides
}

// Qualified is the name by which a container asks for the device.
func (c *CDI) Qualified() string { return cdispec.Qualified(c.Kind, c.Name) }

// CDI returns the CDI device that the configuration asks for; nil if it asks for none. An
// error is a *[config.Problem].
func (a *Attachment) CDI(cfg *config.Config) (*CDI, error) {
	if cfg.CDI == nil {
		return nil, nil
	}
	c := &CDI{Kind: cfg.CDI.Kind, Name: cdispec.DeviceName(a.ContainerID, a.IfName)}
	if c.Kind == "" {
		c.Kind = cdispec.DefaultKind
	}
	if err := cdispec.CheckKind(c.Kind); err != nil {
		return nil, problem("cdi.kind", c.Kind, rule(err))
	}
	if err := a.fill("cdi.socketDir", cfg.CDI.SocketDir, &c.SocketDir); err != nil {
		return nil, err
	}
	if cfg.CDI.Name == "" {
		return c, nil
	}
	if err := a.fill("cdi.name", cfg.CDI.Name, &c.Name); err != nil {
		return nil, err
	}
	if err := cdispec.CheckName(c.Name); err != nil {
		return nil, problem("cdi.name", c.Name, rule(err))
	}
	if !a.Pod().Owns(c.Name) {
		return nil, problem("cdi.name", c.Name, `a name with the pod's UID or the first 12 characters of the container ID in it, such as "{podUID}-{ifName}": `+
			"another device may have this one, and runtimes then give neither")
	}
	return c, nil
}

// rule is what comes after "must be".
func rule(err error) string {
	_, rule, _ := strings.Cut(err.Error(), "must be ")
	return rule
}

// fill fills in the placeholders of one string.
func (a *Attachment) fill(key, text string, into *string) error {
	quoted, _ := json.Marshal(text) // a string always encodes
	filled, err := a.expand(key, quoted)
	if err != nil {
		return err
	}
	return json.Unmarshal(filled, into)
}
