package numbers

import (
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

func TestMain(m *testing.M) {
	kprobes.GuardianMain()
	os.Exit(m.Run())
}
