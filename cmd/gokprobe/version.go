package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// shortRevision is how many characters of a revision are shown.
const shortRevision = 12

// fullVersion is the version, the platform, and the version of Go.
func fullVersion() string {
	return fmt.Sprintf("%s %s/%s %s", buildVersion(version), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// buildVersion is the version that the build has set, else the one that the Go tool has
// recorded in this executable.
func buildVersion(set string) string {
	info, ok := debug.ReadBuildInfo()
	if set != "" || !ok {
		return cmp.Or(set, "(unknown)")
	}
	return recordedVersion(info)
}

// recordedVersion is the module's version, which go install MODULE@VERSION and builds in a
// repository record. If there is none, it is made of the revision.
func recordedVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "(devel)"
	}
	dirty := ""
	if settings["vcs.modified"] == "true" {
		dirty = "-dirty"
	}
	return "devel-" + revision[:min(len(revision), shortRevision)] + dirty
}
