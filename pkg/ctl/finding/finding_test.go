package finding_test

import (
	"testing"

	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/test/difftest"
)

func TestRowTakesValuesByName(t *testing.T) {
	table := finding.Table{
		finding.Row("lost", finding.Error, "the devices", "{device} of {pod} is gone", "delete {pod}", "lost-devices", "is gone"),
		finding.Row("well", finding.OK, "the devices", "{n} devices", "", "", ""),
	}
	lost := table.Of("lost", "device", "{pod}", "pod", "shop/db")
	difftest.Equal(t, lost, finding.Rule{"lost", finding.Error, "the devices", "{pod} of shop/db is gone", "delete shop/db", "lost-devices", "is gone"})
	difftest.Equal(t, lost.String(), "{pod} of shop/db is gone: delete shop/db")
	difftest.Equal(t, table.Of("well", "n", "2").String(), "2 devices")
	difftest.Equal(t, table[0].Text, "{device} of {pod} is gone")
}
