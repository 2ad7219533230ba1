package journal

import (
	"encoding/json"
	"time"

	"devinfo-cni.io/pkg/private"
)

// Refusals tell how often an ADD did not get a device that another pod or a claim has.
type Refusals struct {
	Count  int       `json:"count"` // since CountRefusals
	Time   time.Time `json:"time"`  // of the last one
	Device string    `json:"device"`
	Holder string    `json:"holder"`
	Asker  string    `json:"asker"`
}

const refusals = "refusals"

// CountRefusals has refusals counted from now on, for who watches the node. What a power
// failure has torn begins anew.
func (j *Journal) CountRefusals() error {
	dir := private.Open(j.dir)
	if _, err := j.Refusals(); err == nil && !notThere(dir.Path(refusals)) {
		return nil
	}
	return dir.Write(refusals, []byte("{}\n"))
}

// CountNoRefusals ends that, and forgets them.
func (j *Journal) CountNoRefusals() error { return private.Open(j.dir).Remove(refusals) }

// Refused counts a refusal, if somebody watches. A failure is of no consequence.
func (j *Journal) Refused(held *HeldError, asker string, now time.Time) {
	dir := private.Open(j.dir)
	if notThere(dir.Path(refusals)) {
		return
	}
	_ = j.alone(func() error {
		r, _ := j.Refusals()
		r = Refusals{r.Count + 1, now.UTC(), DeviceName(held.ID), held.Holder.String(), asker}
		data, _ := json.Marshal(r) // of strings and numbers
		return dir.Write(refusals, append(data, '\n'))
	})
}

// Refusals reads what Refused has counted; zero = nothing yet.
func (j *Journal) Refusals() (r Refusals, err error) {
	data, err := private.Open(j.dir).Read(refusals)
	if err == nil {
		err = json.Unmarshal(data, &r)
	} else if notThere(private.Open(j.dir).Path(refusals)) {
		err = nil
	}
	return r, err
}
