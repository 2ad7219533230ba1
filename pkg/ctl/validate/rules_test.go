package validate_test

import (
	"testing"

	"devinfo-cni.io/pkg/ctl/finding/findingtest"
	"devinfo-cni.io/pkg/ctl/validate"
)

func TestTroubleshootingExplainsFindings(t *testing.T) {
	findingtest.Explained(t, "../../..", validate.Rules())
}
