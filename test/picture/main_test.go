package main

import (
	"testing"

	"devinfo-cni.io/test/difftest"
)

func TestPictureInDocsIsCurrent(t *testing.T) {
	difftest.Same(t, "docs/devinfo.svg; make generate draws it", difftest.Read(t, "../../docs/devinfo.svg"), draw())
}
