package recovery

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// stackScan is how far, in bytes, stacks are searched for the contexts that signals have saved.
const stackScan = 1 << 20

// stackSearch finds the contexts that signals have saved on stacks. Each page is read
// once, even if several stacks contain it. The target may forge stacks that overlap,
// and contexts that name further stacks.
type stackSearch struct {
	mem   arch.Memory
	work  *effort
	pages map[arch.Addr]int32 // that were read: which of the lists; notRead
	lists [][]signalFrame     // of what each page has, the first empty: most have nothing
	from  map[arch.Addr]struct{}

	// window is a page, and what a context in it has in front and behind.
	window [beforeContext + stackPage + contextLen]byte
}

const notRead = -1

func newStackSearch(mem arch.Memory, work *effort) *stackSearch {
	return &stackSearch{mem: mem, work: work, pages: map[arch.Addr]int32{}, lists: [][]signalFrame{nil}, from: map[arch.Addr]struct{}{}}
}

// stack calls visit for all contexts that a thread whose stack pointer is sp may return by, on the stacks too that these tell of. It is false
// if the work was too much.
func (s *stackSearch) stack(sp arch.Addr, visit func(sp arch.Addr, f *signalFrame)) bool {
	for todo := []arch.Addr{sp}; len(todo) > 0; todo = todo[1:] {
		sp := todo[0] &^ 7
		if _, again := s.from[sp]; again {
			continue
		}
		if !s.work.spend(stackWork) {
			return false
		}
		s.from[sp] = struct{}{}
		for at := sp &^ (stackPage - 1); at < sp+stackScan; at += stackPage {
			frames, ok := s.page(at)
			if !ok || !s.work.spend(len(frames)*contextWork) {
				break
			}
			for i := range frames {
				f := &frames[i]
				if f.at < sp || f.at >= sp+stackScan || !f.sameStack(sp) {
					continue
				}
				todo = append(todo, f.sp)
				visit(sp, f)
			}
		}
		if s.work.over() {
			return false
		}
	}
	return true
}

const stackPage = 4096

// page is the contexts that begin in a page. ok is false if that can't be read, or the work is too much.
func (s *stackSearch) page(at arch.Addr) (frames []signalFrame, ok bool) {
	if !s.work.spend(pageWork) {
		return nil, false
	}
	k, known := s.pages[at]
	if !known {
		if !s.work.spend(pageWork) {
			return nil, false
		}
		k = s.read(at)
		s.pages[at] = k
	}
	if k == notRead {
		return nil, false
	}
	return s.lists[k], true
}

func (s *stackSearch) read(at arch.Addr) int32 {
	if !s.look(at) {
		return notRead
	}
	var found []signalFrame
	for off := 0; off < stackPage; off += 8 {
		b := s.window[off:][:beforeContext+contextLen]
		if !savedContext(b[beforeContext:]).is() {
			continue
		}
		if !s.work.spend(newContextWork) {
			break
		}
		found = append(found, newFrame(at+arch.Addr(off), b))
	}
	if found == nil {
		return 0
	}
	s.lists = append(s.lists, found)
	return int32(len(s.lists) - 1)
}

// look fills the window. Memory beside the page may be missing, and reads as zero then.
func (s *stackSearch) look(at arch.Addr) bool {
	w := s.window[:]
	if at >= beforeContext && s.mem.ReadMemory(at-beforeContext, w) == nil {
		return true
	}
	front, page, behind := w[:beforeContext], w[beforeContext:][:stackPage], w[beforeContext+stackPage:]
	if s.mem.ReadMemory(at, page) != nil {
		return false
	}
	if s.mem.ReadMemory(at-beforeContext, front) != nil {
		clear(front)
	}
	if s.mem.ReadMemory(at+stackPage, behind) != nil {
		clear(behind)
	}
	return true
}

// signalFrame is a context on a stack, with the fields in front of it (struct
// rt_sigframe in arch/x86/include/asm/sigframe.h).
type signalFrame struct {
	at        arch.Addr  // of its rsp
	sp, ip    arch.Addr  // as it says
	alternate arch.Range // the alternate stack of the signal's thread
	ret       arch.Addr  // where its handler returns to
}

// From the context's rsp back to the fields in front of it, in bytes.
const (
	beforeContext   = 168 // the return address
	beforeAlternate = 144 // ss_sp of uc_stack; ss_size is 16 bytes behind (struct ucontext, stack_t)
)

func newFrame(at arch.Addr, b []byte) signalFrame {
	word := func(before int) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(b[beforeContext-before:])) }
	f := signalFrame{at: at, sp: word(0), ip: word(-8), ret: word(beforeContext)}
	f.alternate.Start = word(beforeAlternate)
	f.alternate.End = f.alternate.Start + word(beforeAlternate-16)
	return f
}

// sameStack tells of a context whether a thread whose stack pointer is sp may return by
// it. The context tells where the alternate stack of the signal's thread is. If only
// one of the context and sp lies there, the context is of another thread's signal, or
// its handler has returned long ago.
func (f *signalFrame) sameStack(sp arch.Addr) bool {
	if f.at < sp+beforeAlternate {
		return true // that was on the stack no more
	}
	return f.alternate.Contains(f.at) == f.alternate.Contains(sp)
}

// savedContext is the part of a signal's context from rsp to csgsfs (arch/x86/include/uapi/asm/sigcontext.h).
type savedContext []byte

const contextLen = 32

func (f savedContext) word(n int) uint64 { return binary.LittleEndian.Uint64(f[8*n:]) }

// is tells whether these can be a context's: the flags have their fixed bit, and cs is that of
// 64-bit user code, ss that of its data.
func (f savedContext) is() bool {
	const fixed, unused, selectors = 1 << 1, ^uint64(1<<22 - 1), 0x002b_0000_0000_0033
	flags := f.word(2)
	return flags&fixed != 0 && flags&unused == 0 && f.word(3) == selectors && f.word(1) != 0
}

// put writes the context with other addresses.
func (f *signalFrame) put(mem arch.Memory, ip, sp arch.Addr) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(sp))
	if err := mem.WriteMemory(f.at, binary.LittleEndian.AppendUint64(b, uint64(ip))); err != nil {
		return err
	}
	f.ip, f.sp = ip, sp
	return nil
}

// searchStacks corrects the contexts that signals have saved on the threads' stacks. If
// a context can't be corrected, it notes the region that the context leads into. It is
// false if that was too much work: then there may be others.
func (r *recovery) searchStacks(threads []*ptrace.Thread) (all bool) {
	s := newStackSearch(r.space, r.work)
	for _, th := range threads {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		if !s.stack(regs.SP(), r.returnsBy) {
			return false
		}
	}
	return true
}

// returnsBy deals with a context that the thread whose stack pointer is sp returns by.
func (r *recovery) returnsBy(sp arch.Addr, f *signalFrame) {
	for _, l := range r.found {
		if l.guard.Code.Contains(f.ret) && f.at >= sp+beforeContext {
			l.frames = true // its handler returns by the guard, which may have taken a part of it already
			return
		}
	}
	for _, l := range r.found {
		if !l.contains(f.ip) {
			continue
		}
		orig, pop, ok := arch.Addr(0), 0, r.work.spend(placeWork)
		if ok {
			orig, pop, ok = l.origin(f.ip)
		}
		if !ok || f.put(r.space, orig, f.sp+arch.Addr(pop)) != nil {
			l.frames = true
		}
	}
}
