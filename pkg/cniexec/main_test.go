package cniexec_test

import (
	"context"
	"log"
	"os"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/cniexec"
)

const roleEnv = "CNIEXEC_TEST_ROLE"

// The test binary is also the caller that the tests kill.
func TestMain(m *testing.M) {
	role, args, _ := strings.Cut(os.Getenv(roleEnv), ":")
	switch role {
	case "":
		os.Exit(m.Run())
	case "caller":
		check(os.Unsetenv(roleEnv))
		_, err := (&cniexec.Exec{Inherit: os.NewFile(3, "lock")}).ExecPlugin(context.Background(), args, nil, os.Environ())
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
