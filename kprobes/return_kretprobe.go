package kprobes

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/frames"
	"github.com/gokprobe/gokprobe/internal/halts"
)

// Returns is how calls are followed to their ends.
type Returns int

const (
	// ReturnSites is the default: a breakpoint stands at each place that is returned to. Nothing on any stack is changed.
	ReturnSites Returns = iota
	// ReturnRewrite has no site: the return address of a call is replaced on the stack by that of a relay, code that leads to the true one, as the kernel does
	// (kernel/kprobes.c, arch_prepare_kretprobe; arch/x86/kernel/rethook.c). It follows returns to where no breakpoint can stand: into code
	// that the target generates. Calls of a probe without handlers are followed in the target, which replaces the addresses itself; others stop at each end. Where return addresses must stay, breakpoints serve as ever: in
	// processes with Go's runtime, a shadow stack, or an unwinder that has no name, and for functions that look at their own return address.
	//
	// The target's own unwinders find true addresses (C++, Rust, pthread_cancel, backtrace). What reads return addresses in another way does not: a
	// profiler in the target that walks frame pointers, a garbage collector of an unknown language. If the tracer is killed, calls return as they
	// would have, and a guardian (or Recover) puts all back; an exception that passes through such a call before that ends the target.
	ReturnRewrite
	// ReturnAuto is ReturnSites where a breakpoint can stand at the place that a call returns to, and else, for that call alone, ReturnRewrite: where the caller is code
	// that the target generates, or lies where no breakpoint may be. So calls of a probe without handlers are still followed in the target wherever that is possible.
	ReturnAuto
)

// maxDataSize is KRETPROBE_MAX_DATA_SIZE (include/linux/kprobes.h).
const maxDataSize = 4096

// KretprobeHandler runs at the entry of a followed function or at its return. ri is this
// call's, valid until the return handler has returned.
type KretprobeHandler func(ri *KretprobeInstance, regs *Regs) int

// Kretprobe follows the calls of one function from entry to return, as the kernel's struct
// kretprobe. Fill in KP.Addr or KP.SymbolName, handlers as needed, and register it. Its
// fields may be changed only while it is not registered.
//
// A call that does not end by its return address (but by longjmp, an exception, the end
// of its thread) counts as missed, at the latest when its place on the stack is used
// again. What return.go does can't be seen by the program.
type Kretprobe struct {
	// KP is the probe at the function's entry. Its handlers are overwritten by the
	// registration (A59). Its Program runs when a followed call has returned, before the
	// Handler, with the registers as they are then, and one more, "duration": the time since the entry
	// in ticks of the helper Time (Session.Elapsed). Without handlers it can run in the target. Where the tracer runs it, the cost of
	// the stops is taken off; in the target it has that of stops for other probes in the call. Session.Took takes that off a record's, too, and tells
	// whether there were stops.
	// KP.Values and KP.RecordHandler are the Program's. KP.Hits counts entries, KP.NMissed those that were hit while a
	// handler ran in the same thread. In a Go function its address is behind the check of
	// the stack, which may be executed several times a call.
	KP Kprobe

	// Handler runs after the function has returned. regs.IP is the return address;
	// changes of it are ignored, those of all other registers are kept. Its result is
	// ignored, too (C8).
	Handler KretprobeHandler
	// EntryHandler runs at the entry, before the call is followed: ri.RetAddr is still 0.
	// Returning anything but 0 lets the call go: no Handler runs, nothing is missed (C5).
	EntryHandler KretprobeHandler

	// MaxActive is how many calls are followed at once, over all threads; further ones count
	// as missed. 0 or less: twice the number of processors and at least 10; registration
	// writes the number here (A57).
	MaxActive int
	// DataSize is the size in bytes of an instance's Data, at most 4096.
	DataSize int

	hits   atomic.Uint64
	missed missed

	// These belong to the tracer's thread.
	live    map[*KretprobeInstance]bool // at most MaxActive
	idle    []*KretprobeInstance
	short   int            // how many calls until the next search for dead instances
	returns map[*site]bool // where calls were seen to return to
	warned  bool

	registered uint64 // how often
	by         Returns
}

// Hits is how many returns ran the Handler, or would have if it had one. It is reset by
// registration. Safe for concurrent use.
func (rp *Kretprobe) Hits() (n uint64) {
	counted(func() {
		_, returns := rp.KP.followedInTarget()
		n = rp.hits.Load() + returns
	})
	return n
}

// NMissed is how many calls could not be followed: MaxActive others were, their return
// address takes no breakpoint, or they ended without returning. It is reset by registration.
// Safe for concurrent use.
func (rp *Kretprobe) NMissed() uint64 { return rp.Misses().Sum() }

// KretprobeInstance is one followed call.
type KretprobeInstance struct {
	// RetAddr is where the function returns to; 0 in the EntryHandler (C4).
	RetAddr arch.Addr
	// Data is DataSize bytes for the handlers of this call; what an earlier call has left
	// there is not cleared (C7).
	Data []byte

	probe  *Kretprobe // nil once it is unregistered
	domain *domain    // nil until it is followed
	entry  *site
	hit    uint64 // the session's number of the hit
	call   frames.Call[*KretprobeInstance]
	sp     arch.Addr // at the entry

	word arch.Addr // that stands there in the place of RetAddr, as far as is known: RetAddr, or a relay that leads there

	began, ended uint64     // when, by tsc
	first, last  *halts.Log // of the threads that have entered and returned; first is nil if the target has noted the entry
	earlier      halts.Sum  // in the process that the call was forked from

	returned bool // and counted: a Handler may be the end of the thread
}

// Kretprobe is the probe that the call is followed by.
func (ri *KretprobeInstance) Kretprobe() *Kretprobe { return ri.probe }

// RegisterKretprobe places rp at the entry of its function. The errors are those of
// RegisterKprobe and, for what is no entry of a function, ErrNotEntry; for a DataSize above
// 4096, ErrDataSize.
func (s *Session) RegisterKretprobe(rp *Kretprobe) error {
	return s.RegisterKretprobes(s.life, []*Kretprobe{rp})
}

// RegisterKretprobes registers all of rps or, after an error, none (A45). It ends early with ctx, as RegisterKprobes does.
func (s *Session) RegisterKretprobes(ctx context.Context, rps []*Kretprobe) error {
	kps := entries(rps)
	adopt := func(i int) { kps[i].ret = rps[i] }
	return s.registry.registerAll(ctx, kps, adopt)
}

func entries(rps []*Kretprobe) []*Kprobe {
	kps := make([]*Kprobe, len(rps))
	for i, rp := range rps {
		kps[i] = &rp.KP
	}
	return kps
}

// UnregisterKretprobe removes rp. When it returns, none of its handlers runs or will run;
// calls in flight return as if they had never been followed (C18). A probe that is not
// registered gets its KP.Addr cleared, nothing else (A43).
func (s *Session) UnregisterKretprobe(rp *Kretprobe) error {
	return s.UnregisterKretprobes([]*Kretprobe{rp})
}

// UnregisterKretprobes removes all of rps that are registered (A46).
func (s *Session) UnregisterKretprobes(rps []*Kretprobe) error {
	return s.UnregisterKprobes(entries(rps))
}

// EnableKretprobe arms a disabled probe.
func (s *Session) EnableKretprobe(rp *Kretprobe) error { return s.EnableKprobe(&rp.KP) }

// DisableKretprobe lets further calls go. Calls in flight still run the Handler (A51).
func (s *Session) DisableKretprobe(rp *Kretprobe) error { return s.DisableKprobe(&rp.KP) }

// prepare makes register_kretprobe's checks and fills in what the caller left open.
func (rp *Kretprobe) prepare(by Returns) error {
	if rp.DataSize > maxDataSize || rp.DataSize < 0 {
		return fmt.Errorf("%w: %d bytes", ErrDataSize, rp.DataSize)
	}
	if rp.MaxActive <= 0 {
		rp.MaxActive = max(10, 2*runtime.NumCPU())
	}
	rp.KP.PreHandler, rp.KP.PostHandler, rp.KP.FaultHandler = rp.entered, nil, nil
	rp.hits.Store(0)
	rp.missed.reset()
	counting.Lock()
	rp.KP.lines = nil
	counting.Unlock()
	rp.registered++
	rp.by = by
	rp.idle, rp.short, rp.warned = nil, 0, false
	rp.live, rp.returns = map[*KretprobeInstance]bool{}, map[*site]bool{}
	return nil
}

// take returns an instance, nil if MaxActive calls are followed already (C2).
func (rp *Kretprobe) take() *KretprobeInstance {
	if len(rp.live)+rp.active() >= rp.MaxActive {
		return nil
	}
	return rp.instance()
}

// instance is take without a limit.
func (rp *Kretprobe) instance() *KretprobeInstance {
	ri := &KretprobeInstance{probe: rp}
	if n := len(rp.idle); n > 0 {
		ri, rp.idle = rp.idle[n-1], rp.idle[:n-1]
	} else {
		ri.Data = make([]byte, rp.DataSize)
	}
	rp.live[ri] = true
	rp.limit()
	return ri
}

// put takes an instance back, unless its probe was unregistered since, and perhaps registered
// again.
func (ri *KretprobeInstance) put() {
	if ri == nil || ri.probe == nil || !ri.probe.live[ri] {
		return
	}
	rp := ri.probe
	delete(rp.live, ri)
	*ri = KretprobeInstance{probe: rp, Data: ri.Data}
	rp.idle = append(rp.idle, ri)
	rp.limit()
}

// end forgets the calls in flight, which return as if they had never been followed (C18). It
// returns the sites that rp no longer needs.
func (rp *Kretprobe) end() []*site {
	var left []*site
	for st := range rp.returns {
		st.calls.end(rp)
		left = append(left, st)
	}
	for ri := range rp.live {
		if ri.domain != nil {
			ri.domain.followed.unlink(ri)
		}
		ri.probe = nil
	}
	rp.endTable()
	rp.live, rp.idle, rp.returns = nil, nil, nil
	return left
}
