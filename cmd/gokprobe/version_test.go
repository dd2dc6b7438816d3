package main

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheVersionIsTheBuildsOrWhatTheGoToolRecorded(t *testing.T) {
	setting := func(kv ...string) []debug.BuildSetting {
		var all []debug.BuildSetting
		for i := 0; i < len(kv); i += 2 {
			all = append(all, debug.BuildSetting{Key: kv[i], Value: kv[i+1]})
		}
		return all
	}
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct {
		of       string
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"go install of a release", "v0.1.0", nil, "v0.1.0"},
		{"go install of a revision", "v0.1.1-0.20261125003414-0123456789ab", nil, "v0.1.1-0.20261125003414-0123456789ab"},
		{"go build in a changed repository", "v0.1.0+dirty", setting("vcs.revision", revision, "vcs.modified", "true"), "v0.1.0+dirty"},
		{"a build that knows no version", "(devel)", setting("vcs.revision", revision, "vcs.modified", "false"), "devel-0123456789ab"},
		{"the same, changed", "(devel)", setting("vcs.revision", revision, "vcs.modified", "true"), "devel-0123456789ab-dirty"},
		{"a build without a repository", "(devel)", setting("GOOS", "linux"), "(devel)"},
		{"a test", "", nil, "(devel)"},
	} {
		got := recordedVersion(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings})
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.of, got, c.want)
		}
	}
	if got := buildVersion("v1.2.3"); got != "v1.2.3" {
		t.Errorf("what the build has set is not told, but %s", got)
	}
}

func TestABuildWithATagSaysItsVersion(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "gokprobe")
	if out, err := exec.Command("go", "build", "-ldflags", "-X main.version=v0.1.0", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(bin, "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "gokprobe version v0.1.0 linux/amd64 go") {
		t.Errorf("%q, %v", out, err)
	}
}
