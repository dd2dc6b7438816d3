package kprobes

import (
	"fmt"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/symbols"
)

// Flags of a Kprobe, with the kernel's values (include/linux/kprobes.h).
type Flags uint32

const (
	FlagGone        Flags = 1 // the probed code has been unmapped
	FlagDisabled    Flags = 2 // registered but silent
	FlagOptimized   Flags = 4 // reached by a jump
	FlagOnFuncEntry Flags = 16
)

// PreHandler runs before the probed instruction; regs.IP is the probed address plus
// one, with each mechanism. Returning 0 lets the instruction run; then changes of the
// IP are ignored, those of all other registers are kept. Returning anything else
// resumes the thread with regs as the handler left them: the instruction, the other
// probes at the address and all PostHandlers are skipped.
type PreHandler func(kp *Kprobe, regs *Regs) int

// PostHandler runs after the probed instruction; regs.IP is where the thread goes on.
// flags is always 0, as in the kernel. After a system call that a signal handler has
// interrupted the result is the kernel's internal one, -ERESTARTSYS or one of its like
// (include/linux/errno.h).
type PostHandler func(kp *Kprobe, regs *Regs, flags uint64)

// Kprobe is a probe on one instruction, as the kernel's struct kprobe. Give either
// Addr or SymbolName, and handlers as needed; then register it. Its fields may be
// changed only while it is not registered.
//
// Handlers run on the session's tracer thread while the thread that hit is stopped
// and all others run on. Handlers of one probe may run concurrently for different
// threads; today they run one after the other.
type Kprobe struct {
	// Addr is the address in the target. Registration writes the probed address
	// here: with Offset added, and behind the endbr64 that a function starts with.
	// To register a probe by symbol again, set it to 0 before, as in the kernel.
	// It is then the same until the probe is unregistered, and may be read by anybody; but for a probe that is placed anew, since its
	// library comes later or again, or its program is executed while followed: of those Session.Status tells the address.
	Addr arch.Addr
	// SymbolName names a function: any SPEC of the command that means exactly one
	// address. Its library may be loaded later if its name holds ".so".
	SymbolName string
	// Offset in bytes is added to Addr or to the symbol's address.
	Offset uint64

	PreHandler   PreHandler
	PostHandler  PostHandler
	FaultHandler FaultHandler

	// Program is run at each hit, before the PreHandler if there is one; without one it
	// can run in the target. The same holds for one that decides
	// (program.Program.Decides). Its PreHandler, and no other handler, runs only for
	// hits that the Program has chosen. The others count as hits, and do not stop where
	// the site is optimized. Rings and their sizes are the session's. The first two
	// words of each record must be what the helpers Time and Thread have returned: a
	// shorter record is refused (ErrShortRecord).
	Program *program.Program
	// SharedState, if it is not nil, is what the state of the Program is, if that has one.
	SharedState *SharedState
	// RecordHandler gets the Program's records.
	RecordHandler RecordHandler

	// Unless, if it is set, tells of another probe at an address that this one is not to be placed there beside it (ErrPlaced). It is called on the tracer's thread.
	Unless func(other *Kprobe) bool

	// Flags may hold FlagDisabled at registration. The others are set by the
	// session; read them by Session.Status.
	Flags Flags

	session    *Session // nil if not registered
	forCalls   bool     // it is one of a SyscallProbe
	registered uint64   // how often
	hits       atomic.Uint64
	missed     missed
	torn       atomic.Uint64
	entry      bool
	ret        *Kretprobe  // whose entry it is
	jprobe     *Jprobe     // whose it is
	placements []placement // one for each address space it is in
	counters   []*counter  // guarded by counting
	lines      []*callLine // of the Kretprobe whose entry it is; guarded by counting

	checked    *program.Checked // Program, for hits that the tracer handles
	values     [][]uint64       // of the Program's maps; guarded by counting
	recordings []*recording     // that write to other maps; guarded by counting
	state      *SharedState     // the Program's, SharedState or its own; guarded by counting

	absence absence
	pattern *Pattern // that has registered it; nil for none

	mark symbols.Mark // where followed programs' files have it; used on the tracer's thread only
}

// placement is a probe's site in one address space.
type placement struct {
	domain *domain
	site   *site
}

// Hits is how many times the probe was hit while it was enabled. It is reset by
// registration. Safe for concurrent use.
func (kp *Kprobe) Hits() (n uint64) {
	counted(func() { n = kp.hits.Load() + kp.countedInTarget() })
	return n
}

// NMissed counts hits that ran no handler since one was running in the same thread. It
// also counts the accesses of its own handlers that a FaultHandler was asked about. It
// is reset by registration. Safe for concurrent use.
func (kp *Kprobe) NMissed() uint64 { return kp.Misses().Sum() }

// Torn counts records of the Program that were reserved and are not whole: their threads were killed, the probe was
// unregistered meanwhile, or the target itself has written there. The map that counts lost records counts them, too. It is reset by registration.
// Safe for concurrent use.
func (kp *Kprobe) Torn() uint64 { return kp.torn.Load() }

func (kp *Kprobe) name() string {
	switch {
	case kp.SymbolName == "" && kp.session != nil:
		return kp.Addr.String()
	case kp.SymbolName == "":
		return kp.Addr.Add(int64(kp.Offset)).String()
	case kp.Offset != 0:
		return fmt.Sprintf("%s+%#x", kp.SymbolName, kp.Offset)
	}
	return kp.SymbolName
}

func (kp *Kprobe) enabled() bool { return kp.Flags&(FlagDisabled|FlagGone) == 0 }
