package cluster

import (
	"testing"

	"devinfo-cni.io/pkg/ctl/finding/findingtest"
)

func TestTroubleshootingExplainsProblems(t *testing.T) { findingtest.Explained(t, "../../..", rules) }
