package fetch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// randomArg is an argument whose value is the same whenever the function is called the same way.
func randomArg(r *rand.Rand, name string) fetch.Arg {
	a := fetch.Arg{Name: name}
	bases := []fetch.Source{
		{Name: "rdi"}, {Name: "rsi"}, {Name: "r9"}, {Name: "rip"}, {Name: "rsp"}, {Base: fetch.Stack}, {Base: fetch.StackWord}, {Base: fetch.Argument, N: 1 + r.Int64N(7)},
		{Base: fetch.Symbol, Name: "text", Off: r.Int64N(5)}, {Base: fetch.Immediate, N: r.Int64()}, {Base: fetch.Immediate, N: -r.Int64N(1000)}, {Base: fetch.Comm}, {Base: fetch.Text, Name: "as it is"},
	}
	a.Source = bases[r.IntN(len(bases))]
	for range r.IntN(3) {
		if a.Source.Name == "rip" {
			break // it reads probed code
		}
		a.Source.Derefs = append(a.Source.Derefs, fetch.Deref{Off: r.Int64N(3) - 1})
	}
	size := 1 << r.IntN(4)
	switch kind := fetch.Kind(r.IntN(9)); kind {
	case fetch.BitField:
		width := 1 + r.IntN(8*size)
		a.Type = fetch.Type{Kind: kind, Size: size, Width: width, Shift: r.IntN(8*size - width + 1)}
	case fetch.String, fetch.UString:
		a.Type = fetch.Type{Kind: kind}
	case fetch.Char:
		a.Type = fetch.Type{Kind: kind, Size: 1}
	case fetch.SymbolOff, fetch.SymStr:
		a.Type = fetch.Type{Kind: kind, Size: 8}
	default:
		a.Type = fetch.Type{Kind: kind, Size: size}
	}
	switch {
	case a.Source.Base == fetch.Comm || a.Source.Base == fetch.Text:
		a.Type, a.Source.Derefs = fetch.Type{Kind: fetch.String}, nil
	case a.Source.Name == "rip" && a.Type.Size == 0:
		a.Type = fetch.Type{Kind: fetch.Hex, Size: 8}
	case len(a.Source.Derefs) > 0 && r.IntN(3) == 0:
		a.Type.Count = 1 + r.IntN(12)
	}
	return a
}

// What the target records is what the tracer fetches.
func TestTheTargetFetchesWhatTheTracerFetches(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Symbols().Object("text")
	if err != nil {
		t.Fatal(err)
	}
	env := fetch.Env{ABI: host.C, Symbol: func(string) (arch.Addr, bool) { return text.Addr, true }}
	host := func(comm string) fetch.Host {
		return fetch.Host{Comm: comm, Symbolize: func(a arch.Addr) string { return "at " + a.String() }}
	}
	optimized := 0
	for range 40 {
		args := make([]fetch.Arg, 1+r.IntN(6))
		for i := range args {
			args[i] = randomArg(r, fmt.Sprint("a", i))
		}
		l, err := fetch.NewLayout(args, env)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := l.Program("random", program.Cond{}, program.Map{Kind: program.Ring, Size: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		print := func(payload []byte, comm string) (line string) {
			for i, v := range l.Decode(payload, host(comm)) {
				line += args[i].Format(v) + " "
			}
			return line
		}
		calls := func(kp *kprobes.Kprobe) {
			kp.SymbolName = "sum6"
			if err := s.RegisterKprobe(kp); err != nil {
				t.Fatal(err)
			}
			s.WaitForOptimizer(t.Context())
			if s.Status(kp).Mechanism == kprobes.Optimized {
				optimized++
			}
			for _, v := range []int{0, 1, -7} {
				p.Do(fmt.Sprint("call six ", v), "ret")
			}
			if err := s.UnregisterKprobe(kp); err != nil {
				t.Fatal(err)
			}
		}
		var want, got []string
		calls(&kprobes.Kprobe{PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
			payload, err := l.Run(regs, regs, nil)
			if err != nil {
				t.Error(err)
			}
			want = append(want, print(payload, regs.Comm()))
			return 0
		}, PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}})
		calls(&kprobes.Kprobe{Program: prog, RecordHandler: func(_ *kprobes.Kprobe, h *kprobes.HitRecord) {
			got = append(got, print(h.Payload, h.Comm))
		}})
		if len(want) != 3 || !slices.Equal(got, want) {
			t.Errorf("%+v:\ngot  %q\nwant %q", args, got, want)
		}
	}
	if optimized != 40 {
		t.Errorf("%d of 40 programs ran in the target", optimized)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}
