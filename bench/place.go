package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// placed is a registered probe.
type placed struct {
	hits func() uint64
	// stops says why hits stop, or are the tracer's where they should be the target's; empty if not.
	stops func() string
	// records is how many records of hits have been read, nil if it makes none.
	records func() uint64
}

// by is a probe whose hits are counted so.
func by(s *kprobes.Session, kp *kprobes.Kprobe, hits func() uint64) placed {
	return placed{hits: hits, stops: func() string {
		st := s.Status(kp)
		return unless(st.Mechanism == kprobes.Optimized, st.Mechanism.String(), st.Reason)
	}}
}

// unless is why something is by mechanism, if it is not as it should be.
func unless(optimized bool, mechanism, reason string) string {
	switch {
	case optimized:
		return ""
	case reason == "":
		return "it is " + mechanism
	}
	return reason
}

// places register probes at a function.
var places = map[string]func(s *kprobes.Session, symbol string) (placed, error){
	"kprobe": func(s *kprobes.Session, symbol string) (placed, error) {
		kp := &kprobes.Kprobe{SymbolName: symbol, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
		return by(s, kp, kp.Hits), s.RegisterKprobe(kp)
	},
	"count": func(s *kprobes.Session, symbol string) (placed, error) {
		kp := &kprobes.Kprobe{SymbolName: symbol}
		return by(s, kp, kp.Hits), s.RegisterKprobe(kp)
	},
	"record": placeRecord,
	"values": placeValues,
	"decide": placeDecision,
	"rule":   placeRule,

	"rule of calls by sites": func(s *kprobes.Session, _ string) (placed, error) {
		return placeCallRule(s, kprobes.SyscallBySites)
	},
	"rule of calls by stops": func(s *kprobes.Session, _ string) (placed, error) {
		return placeCallRule(s, kprobes.SyscallByStops)
	},
	"kretprobe": func(s *kprobes.Session, symbol string) (placed, error) {
		handler := func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: symbol}, Handler: handler}
		return by(s, &rp.KP, rp.Hits), s.RegisterKretprobe(rp)
	},
	"count of returns": func(s *kprobes.Session, symbol string) (placed, error) {
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: symbol}}
		return by(s, &rp.KP, rp.Hits), s.RegisterKretprobe(rp)
	},
	"durations":         placeDurations,
	"record of returns": placeReturnRecord,
	"jprobe": func(s *kprobes.Session, symbol string) (placed, error) {
		jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: symbol}, Entry: func(kprobes.Ptr, int64) {}}
		return by(s, &jp.KP, jp.KP.Hits), s.RegisterJprobe(jp)
	},
}

// placeRecord registers a probe whose hits record time, thread and two arguments.
func placeRecord(s *kprobes.Session, symbol string) (placed, error) {
	return placeItems(s, symbol, host.C.Args[:2],
		program.Item{Value: program.Reg(host.C.Args[0])}, program.Item{Value: program.Reg(host.C.Args[1])})
}

// placeValues registers a probe whose hits record time, thread, a local variable of the caller's, on the stack, and a member behind two
// pointers: they are the block's own, so it is the first of them again.
func placeValues(s *kprobes.Session, symbol string) (placed, error) {
	sp, block := host.Roles.SP, host.C.Args[0]
	return placeItems(s, symbol, []string{sp, block},
		program.Item{Kind: program.Bytes, Value: program.Reg(sp).Plus(8), Max: 8},
		program.Item{Kind: program.Bytes, Value: program.Reg(block).Plus(linkWord), Max: 8},
		program.Item{Kind: program.Bytes, Value: program.ItemWord(3, 0).Plus(linkWord), Max: 8})
}

// placeItems registers a probe whose hits record time, thread and these items.
func placeItems(s *kprobes.Session, symbol string, regs []string, items ...program.Item) (placed, error) {
	p, err := program.Build(symbol, 0, regs, program.Cond{}, program.WriteRecord{
		Ring:  program.Map{Kind: program.Ring, Size: program.MinRingSize},
		Items: append([]program.Item{{Value: program.Now()}, {Value: program.CurrentThread()}}, items...),
	})
	if err != nil {
		return placed{}, err
	}
	var n atomic.Uint64
	kp := &kprobes.Kprobe{SymbolName: symbol, Program: p, RecordHandler: func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
		if last := len(items) - 1; items[last].Kind == program.Number || same(p, r.Payload, last+1, last+2) {
			n.Add(1)
		}
	}}
	placed := by(s, kp, kp.Hits)
	placed.records = n.Load
	return placed, s.RegisterKprobe(kp)
}

// same tells whether two items of a record were read, and are the same bytes.
func same(p *program.Program, record []byte, a, b int) bool {
	item := func(i int) []byte { return record[p.Fields[i].Off:][:p.Fields[i].Size] }
	read := func(i int) bool { return int64(binary.NativeEndian.Uint64(record[p.Fields[i].Err:])) >= 0 }
	return read(a) && read(b) && bytes.Equal(item(a), item(b))
}

// placeDecision registers a probe with a handler whose program decides by chance, and chooses next to none.
func placeDecision(s *kprobes.Session, symbol string) (placed, error) {
	const seldom = 1 << 20 // of 1<<64
	p, err := program.Decision(symbol, nil, program.Compare(program.Sequence(0).Mixed(1), program.Below, program.Const(seldom)))
	if err != nil {
		return placed{}, err
	}
	kp := &kprobes.Kprobe{SymbolName: symbol, Program: p, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	return by(s, kp, kp.Hits), s.RegisterKprobe(kp)
}

// placeDurations registers a kretprobe with a histogram of how long the calls take.
func placeDurations(s *kprobes.Session, symbol string) (placed, error) {
	p, err := program.Build(symbol, 0, []string{"duration"}, program.Cond{},
		program.AddToHistogram{Map: program.Map{Kind: program.Log2}, Value: program.Reg("duration")})
	if err != nil {
		return placed{}, err
	}
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: symbol, Program: p}}
	return by(s, &rp.KP, rp.Hits), s.RegisterKretprobe(rp)
}

// placeReturnRecord registers a kretprobe whose returns record time, thread, result and duration.
func placeReturnRecord(s *kprobes.Session, symbol string) (placed, error) {
	p, err := program.Build(symbol, 0, []string{host.C.Results[0], "duration"}, program.Cond{}, program.WriteRecord{
		Ring: program.Map{Kind: program.Ring, Size: program.MinRingSize},
		Items: []program.Item{
			{Value: program.Now()}, {Value: program.CurrentThread()}, {Value: program.Reg(host.C.Results[0])}, {Value: program.Reg("duration")},
		},
	})
	if err != nil {
		return placed{}, err
	}
	var n atomic.Uint64
	rp := &kprobes.Kretprobe{}
	rp.KP.SymbolName, rp.KP.Program = symbol, p
	rp.KP.RecordHandler = func(*kprobes.Kprobe, *kprobes.HitRecord) { n.Add(1) }
	placed := by(s, &rp.KP, rp.Hits)
	placed.records = n.Load
	return placed, s.RegisterKretprobe(rp)
}

// settleTime is how long the tracer may take for the records of a portion.
const settleTime = 20 * time.Second

// settle waits until the records of all n hits have been read: a hit that finds no room for
// its record costs less.
func settle(probes []placed, n uint64) error {
	for _, p := range probes {
		if p.records == nil {
			continue
		}
		for end := time.Now().Add(settleTime); p.records() < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("%d of %d hits were recorded", p.records(), n)
			}
		}
	}
	return nil
}
