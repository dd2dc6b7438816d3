package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAProcessorThatIsNotThereYetIsRefused runs the command here as it is for arm64: by what internal/host says there.
func TestAProcessorThatIsNotThereYetIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command again")
	}
	host, err := filepath.Abs("../../internal/host")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, other := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "gokprobe")
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(host, "host_amd64.go"): filepath.Join(host, "host_arm64.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", other, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, args := range []string{"demo", "check", "list -p 1", "attach -p 1 -sym main", "recover -p 1", "bench", "run -- /bin/true"} {
		out, err := exec.Command(other, strings.Fields(args)...).CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "is not supported yet: gokprobe can't decode instructions of arm64") {
			t.Errorf("gokprobe %s: %v\n%s", args, err, out)
		}
	}
	if out, err := exec.Command(other, "--version").CombinedOutput(); err != nil {
		t.Errorf("gokprobe --version: %v\n%s", err, out)
	}
}
