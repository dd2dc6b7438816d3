package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// shortRevision is how much of a revision is shown.
const shortRevision = 12

// fullVersion is the version with what it was built for and by.
func fullVersion() string {
	return fmt.Sprintf("%s %s/%s %s", buildVersion(version), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// buildVersion is what the build has set, or else what the Go tool has recorded of this program.
func buildVersion(set string) string {
	info, ok := debug.ReadBuildInfo()
	if set != "" || !ok {
		return cmp.Or(set, "(unknown)")
	}
	return recordedVersion(info)
}

// recordedVersion is the module's version, as go install MODULE@VERSION and builds in a repository have it, or the revision, if only that is known.
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
