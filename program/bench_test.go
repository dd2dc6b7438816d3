package program

import "testing"

// BenchmarkRun is one hit that the tracer handles: a record of time, thread and two arguments.
func BenchmarkRun(b *testing.B) {
	p, err := Build("bench", 1, testRegs, Cond{}, WriteRecord{Ring: ring, Items: []Item{
		{Value: Now()}, {Value: CurrentThread()}, {Value: Reg("di")}, {Value: Reg("si")},
	}})
	if err != nil {
		b.Fatal(err)
	}
	c, err := Check(p)
	if err != nil {
		b.Fatal(err)
	}
	e := env(p, regs{1, 2, 3, 4}, nil)
	r, err := NewRingReader(p.Maps[0], e.Maps[0])
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Run(e); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Read(func(Record) {}); err != nil {
			b.Fatal(err)
		}
	}
}
