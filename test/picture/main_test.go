package main

import (
	"testing"

	"devinfo-cni.io/test/difftest"
)

func TestPicturesInDocsAreCurrent(t *testing.T) {
	for _, name := range names {
		drawn, err := draw(name)
		difftest.Must(t, err)
		difftest.Same(t, "docs/"+name+".svg; make generate draws it", difftest.Read(t, "../../docs/"+name+".svg"), drawn)
	}
}
