package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

//go:embed testdata/returns.c
var returnsSource []byte

// Calls of a measurement: those that the target follows, and those that the tracer does.
const (
	targetReturns = 200_000
	tracerReturns = 2_000
	returnRounds  = 5
)

// ways are the names of kprobes.Returns.
var ways = []string{kprobes.ReturnSites: "sites", kprobes.ReturnRewrite: "rewrite", kprobes.ReturnAuto: "auto"}

var callKinds = []string{"few", "many", "generated"}

// followed is what is wanted of returns.
type followed struct {
	name  string
	calls int
	probe func() (*kprobes.Kretprobe, error)
}

var followedKinds = []followed{
	{"counted", targetReturns, func() (*kprobes.Kretprobe, error) { return &kprobes.Kretprobe{}, nil }},
	{"recorded", targetReturns, recordedReturns},
	{"handled", tracerReturns, func() (*kprobes.Kretprobe, error) {
		return &kprobes.Kretprobe{Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }}, nil
	}},
}

func recordedReturns() (*kprobes.Kretprobe, error) {
	p, err := program.Build("work", 0, []string{"duration"}, program.Cond{}, program.WriteRecord{
		Ring:  program.Map{Kind: program.Ring, Size: program.MinRingSize},
		Items: []program.Item{{Value: program.Now()}, {Value: program.Reg("duration")}},
	})
	rp := &kprobes.Kretprobe{}
	rp.KP.Program, rp.KP.RecordHandler = p, func(*kprobes.Kprobe, *kprobes.HitRecord) {}
	return rp, err
}

// returns measures what a followed call costs by each of the ways in which its return is met.
func returns(dir, _ string, kept io.Writer) error {
	bin := filepath.Join(dir, "returns")
	if err := compile(returnsSource, bin); err != nil {
		return err
	}
	fmt.Printf("Calls whose returns are followed, each (medians of %d rounds; called from one place, from 400, from generated code; †: these are missed)\n", returnRounds)
	w := table()
	fmt.Fprint(w, "\t")
	for _, kind := range callKinds {
		fmt.Fprint(w, "\t"+kind)
	}
	fmt.Fprintln(w)
	for _, of := range followedKinds {
		for by, way := range ways {
			m, missed, err := returnsBy(bin, of, kprobes.Returns(by))
			if err != nil {
				return fmt.Errorf("%s by %s: %w", of.name, way, err)
			}
			fmt.Fprintf(w, "%s\t%s", of.name, way)
			for _, kind := range callKinds {
				mark := ""
				if missed[kind] {
					mark = "†"
				}
				fmt.Fprintf(w, "\t%s%s", show(m[kind].median()), mark)
				if err := m[kind].keep(kept, fmt.Sprintf("Return/%s=%s/from=%s", of.name, way, kind)); err != nil {
					return err
				}
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush()
}

// returnsBy measures what each call costs, and tells which kinds of calls' returns are missed.
func returnsBy(bin string, of followed, by kprobes.Returns) (m map[string]series, missed map[string]bool, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return nil, nil, err
	}
	defer t.end()
	s, err := kprobes.Attach(context.Background(), t.pid(), kprobes.Options{Returns: by, Log: func(string) {}})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rp, err := of.probe()
	if err != nil {
		return nil, nil, err
	}
	rp.KP.SymbolName = "work"
	if err := s.RegisterKretprobe(rp); err != nil {
		return nil, nil, err
	}
	m, missed = map[string]series{}, map[string]bool{}
	for round := range returnRounds + 2 {
		for _, kind := range callKinds {
			s.WaitForOptimizer(context.Background())
			n := of.calls
			if round < 2 { // the first calls make places to return to
				n = tracerReturns
			}
			before := rp.NMissed()
			d, err := t.timed("%s %d", kind, n)
			if err != nil {
				return nil, nil, err
			}
			if round >= 2 {
				m[kind] = append(m[kind], d/time.Duration(n))
			}
			missed[kind] = rp.NMissed() > before
		}
	}
	return m, missed, nil
}
