package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker when a release is built:
// -ldflags "-X main.version=v1.2.3".
var version string

// versionText is the release, or what the build knows of its source.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func versionCommand(p *program) *command {
	c := newCommand("version", "print the version")
	c.run = func(context.Context, []string) error {
		_, err := fmt.Fprintf(p.stdout, "tollhouse %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
	return c
}
