package agent

import "devinfo-cni.io/pkg/journal"

// watchRefusals has the plugin count the ADDs that it refuses because another pod, or a claim,
// has the device, and tells the log of the last one when there are more than before. The pod's
// own event, by the kubelet, has the plugin's whole text.
func (a *Agent) watchRefusals() error {
	node, err := a.Node()
	if err != nil {
		return err
	}
	j := journal.Open(node.StateDir, a.BootID)
	if err := j.CountRefusals(); err != nil {
		return err
	}
	now, err := j.Refusals()
	if err != nil {
		return err
	}
	a.mu.Lock()
	before := a.refusals
	a.refusals = &now
	a.mu.Unlock()
	if before != nil && now.Count > before.Count {
		a.Log.Warn("an ADD was refused: the device is another's", "device", now.Device, "holder", now.Holder, "asker", now.Asker, "refusals", now.Count-before.Count)
	}
	return nil
}
