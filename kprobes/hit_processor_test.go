package kprobes_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// A program that may run on one processor only is seen there, by what runs in it and by the tracer.
func TestTheProcessorOfAHit(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o   kprobes.Options
		env []string
	}{
		"jumps": {}, "breakpoints": {o: kprobes.Options{NoOptimize: true}},
		"without rseq": {kprobes.Options{NoOptimize: true}, []string{"GLIBC_TUNABLES=glibc.pthread.rseq=0"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, p := c.o, testprog.StartWith(t, testprog.Options{Env: c.env}, testprog.Build(t, "prey"))
			s := attach(t, p.PID(), o)
			prog, err := program.Build("processor", 0, nil, program.Cond{}, program.WriteRecord{
				Ring:  program.Map{Kind: program.Ring, Size: 8 * program.MaxRecord},
				Items: []program.Item{{Name: "time", Value: program.Now()}, {Name: "thread", Value: program.CurrentThread()}, {Name: "processor", Value: program.CurrentProcessor()}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var recorded, stopped []int
			register(t, s, &kprobes.Kprobe{SymbolName: "foo", Program: prog, RecordHandler: func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
				recorded = append(recorded, int(binary.LittleEndian.Uint64(r.Payload[prog.Fields[2].Off:])))
			}}, &kprobes.Kprobe{SymbolName: "target", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				stopped = append(stopped, r.Processor())
				return 0
			}})
			s.WaitForOptimizer(t.Context())
			var want []int
			for cpu := range 8 * len(all) * 8 {
				if !all.IsSet(cpu) || len(want) == 4 {
					continue
				}
				var one unix.CPUSet
				one.Set(cpu)
				if err := unix.SchedSetaffinity(p.PID(), &one); err != nil {
					t.Fatal(err)
				}
				p.Do("call foo 1", "ret 3")
				p.Do("call target 3", "ret 1")
				want = append(want, cpu)
			}
			s.FlushRecords()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(recorded) != fmt.Sprint(want) || fmt.Sprint(stopped) != fmt.Sprint(want) {
				t.Errorf("on processors %v hits are recorded on %v and handled on %v", want, recorded, stopped)
			}
		})
	}
}
