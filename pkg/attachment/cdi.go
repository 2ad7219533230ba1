package attachment

import (
	"cmp"
	"encoding/json"
	"strings"

	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/config"
)

// CDI returns the configuration's "cdi", with placeholders and defaults filled in; nil if it
// asks for none. An error is a *[config.Problem].
func (a *Attachment) CDI(cfg *config.Config) (*config.CDI, error) {
	if cfg.CDI == nil {
		return nil, nil
	}
	c := &config.CDI{Kind: cmp.Or(cfg.CDI.Kind, cdispec.DefaultKind), Name: cdispec.DeviceName(a.ContainerID, a.IfName)}
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
