package main

import (
	"fmt"
	"log/slog"

	"k8s.io/klog/v2"

	"devinfo-cni.io/pkg/ctl/commandline"
)

// logger is for the Kubernetes libraries too.
func logger(o *options) (*slog.Logger, error) {
	var level klog.Level
	if err := level.Set(fmt.Sprint(o.verbosity)); err != nil {
		return nil, fmt.Errorf("-v: %w", err)
	}
	log := commandline.Logger(o.logFormat, o.verbosity)
	klog.SetSlogLogger(log)
	return log, nil
}
