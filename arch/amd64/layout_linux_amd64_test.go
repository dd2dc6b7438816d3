package amd64_test

import (
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch/amd64"
)

func TestRegsHasTheKernelsLayout(t *testing.T) {
	ours, kernels := reflect.TypeFor[amd64.Regs](), reflect.TypeFor[unix.PtraceRegs]()
	if ours.Size() != kernels.Size() || ours.NumField() != kernels.NumField() {
		t.Fatalf("%d bytes in %d fields, want %d in %d", ours.Size(), ours.NumField(), kernels.Size(), kernels.NumField())
	}
	for n := range kernels.NumField() {
		a, b := ours.Field(n), kernels.Field(n)
		if a.Name != b.Name || a.Offset != b.Offset || a.Type != b.Type {
			t.Errorf("%s %s at %d, want %s %s at %d", a.Name, a.Type, a.Offset, b.Name, b.Type, b.Offset)
		}
	}
}
