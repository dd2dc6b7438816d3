package trace_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

func TestMain(m *testing.M) {
	kprobes.GuardianMain()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trace")
	if err == nil {
		defer os.RemoveAll(dir)
		err = buildShop(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
