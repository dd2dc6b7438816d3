package bench

import (
	"context"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Rules by which calls might fail. Hardly any call ever does, so the cost is that of a
// call that passes.

// hardly is the share of the calls that fail: less than one call of a hundred years.
const hardly = 1e-18

// placeRule sets a rule that counts for each thread. The target can't do that, so the
// tracer decides each call.
func placeRule(s *kprobes.Session, symbol string) (placed, error) {
	attr := fault.Always()
	attr.Probability, attr.PerThread = hardly, true
	return ruled(s, inject.Rule{Spec: symbol, Attr: attr})
}

// placeCallRule is about the system call that foo_call makes, seen in either way. By sites the target decides.
func placeCallRule(s *kprobes.Session, way kprobes.SyscallWay) (placed, error) {
	attr := fault.Always()
	attr.Probability = hardly
	p, err := ruled(s, inject.Rule{Syscall: "getppid", SyscallBy: way, Attr: attr})
	if err != nil {
		return placed{}, &unavailable{"not measured: " + err.Error()}
	}
	return p, nil
}

func ruled(s *kprobes.Session, r inject.Rule) (placed, error) {
	r.Do = []inject.Action{inject.Return{}}
	f, err := inject.New(s, inject.Options{}).Add(context.Background(), r)
	if err != nil {
		return placed{}, err
	}
	return placed{
		hits: func() uint64 { return f.Stats().Calls },
		stops: func() string {
			at := f.Stats().Places[0]
			return unless(at.Mechanism == kprobes.Optimized || at.Decides == "target", at.By(), at.Reason)
		},
	}, nil
}
