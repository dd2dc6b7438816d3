package amd64_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// stepped is a thread that is stepped through an upcall's body.
type stepped struct {
	*cpu
	mem    []byte // of the mailboxes, as the tracer has it
	boxes  arch.Mailboxes
	body   arch.UpcallBody
	code   arch.BodyCode
	site   arch.Addr
	work   arch.UpcallWork
	before amd64.Regs // at the site
	after  amd64.Regs // as a handler leaves them
}

const upcallBoxes = 16

// trap is the breakpoint that leaves the hit to the tracer, waiting the one at which an answer is waited for.
func (s *stepped) trap() arch.Addr    { return stopFor(s.code.Stops, arch.StopUntaken).At }
func (s *stepped) waiting() arch.Addr { return stopFor(s.code.Stops, arch.StopWaiting).At }

func newStepped(t *testing.T, rnd *rand.Rand) *stepped {
	s := &stepped{cpu: newCPU(t), site: codeAt + 0x100}
	s.work = arch.UpcallWork{Site: s.site, RedZone: true}
	s.mem = make([]byte, code.Arch{}.UpcallSize(upcallBoxes))
	s.boxes = code.Arch{}.Mailboxes(s.mem, dataAt, upcallBoxes)
	s.boxes.SetPatience(3)
	s.work.Boxes = s.boxes
	s.assemble()
	s.random(rnd)
	return s
}

// assemble makes the body for s.work.
func (s *stepped) assemble() {
	s.t.Helper()
	s.body = code.Arch{}.UpcallBody(s.work)
	var err error
	if s.code, err = s.body.Assemble(slotAt); err != nil {
		s.t.Fatal(err)
	}
	s.put(slotAt, s.code.Code)
}

// random chooses registers for the site, and for behind it.
func (s *stepped) random(rnd *rand.Rand) {
	for _, r := range []*amd64.Regs{&s.before, &s.after} {
		*r = s.regs()
		for _, name := range r.Names() {
			switch name {
			case "rip", "rsp", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "orig_rax", "fs_base", "gs_base":
				continue
			}
			r.Set(name, rnd.Uint64())
		}
		r.Eflags = 0x202 | rnd.Uint64()&(arithmeticFlags&^0x400)
		r.Rsp = stackAt + 0x8000 + 8*uint64(rnd.IntN(0x100))
		r.Orig_rax = ^uint64(0)
	}
	s.before.Rip, s.after.Rip = slotAt, uint64(s.end())
	s.after.Fs_base, s.after.Gs_base = s.before.Fs_base, s.before.Gs_base
}

func (s *stepped) end() arch.Addr { return slotAt + arch.Addr(len(s.code.Code)) }

// pull and push move the mailboxes.
func (s *stepped) pull() { copy(s.mem, s.get(dataAt, len(s.mem))) }
func (s *stepped) push() { s.put(dataAt, s.mem) }

// answer lets the tracer handle the mailbox that is posted, as how says.
func (s *stepped) answer(how arch.BoxState) {
	s.t.Helper()
	box := s.boxes.Poll()
	if box == nil {
		s.t.Fatal("no mailbox is posted")
	}
	want := s.before
	want.Rip = uint64(s.site) + 1
	got := *box.Regs().(*amd64.Regs)
	got.Eflags &^= 1 << 8 // the thread is stepped
	if got != want {
		s.t.Fatalf("the mailbox has\n%+v, want\n%+v", got, want)
	}
	s.noted(box)
	switch how {
	case arch.BoxTaken:
	case arch.BoxDeclined:
		box.Decline()
	default:
		s.handle(box, how)
	}
}

// noted compares what box has of the stack: the word is there if it lies in the page of the last push.
func (s *stepped) noted(box arch.Mailbox) {
	s.t.Helper()
	if s.work.Notes == arch.NoWord {
		return
	}
	const page = 4096
	at, pushed := arch.Addr(s.before.Rsp), arch.Addr(s.before.Rsp-32)
	if s.work.RedZone {
		pushed -= 128
	}
	if s.work.Notes == arch.PoppedWord {
		at -= 8
	}
	got, ok := box.Noted(at)
	if want := (at+7)/page == pushed/page; ok != want {
		s.t.Fatalf("with rsp %#x, is a word noted: %t, want %t", s.before.Rsp, ok, want)
	}
	if ok && got != binary.LittleEndian.Uint64(s.get(at, 8)) {
		s.t.Fatalf("the word noted at %s is %#x", at, got)
	}
	if _, ok := box.Noted(at + 8); ok {
		s.t.Fatal("a word that was not asked for is noted")
	}
}

// handle does what a handler might.
func (s *stepped) handle(box arch.Mailbox, how arch.BoxState) {
	eflags := box.Regs().(*amd64.Regs).Eflags
	box.Regs().CopyFrom(&s.after)
	r := box.Regs().(*amd64.Regs)
	r.Eflags = eflags&^0x8d5 | s.after.Eflags&0x8d5
	if how == arch.BoxCalled {
		box.Call()
		return
	}
	box.Answer()
	if box.State() != how {
		s.t.Fatalf("the mailbox is in state %d, want %d", box.State(), how)
	}
}

// check unwinds the thread, in a copy of everything.
func (s *stepped) check(r amd64.Regs) {
	s.t.Helper()
	kept := append([]byte(nil), s.mem...)
	at := r.IP()
	end, box, err := s.body.Unwind(slotAt, &r, s.cpu)
	if err != nil {
		s.t.Fatalf("at +%#x: %v", uint64(at-slotAt), err)
	}
	want := s.before
	switch {
	case end == arch.UpcallUndone:
		want.Rip = uint64(s.site)
	case end == arch.UpcallDone:
		want = s.after
		if r.Rip == 0 {
			want.Rip = 0
		}
	case box == nil || box.State() != arch.BoxTaken:
		s.t.Fatalf("at +%#x: the mailbox should be taken", uint64(at-slotAt))
	default:
		want.Rip = uint64(at)
	}
	const seen = 0x8d5 // the others are the processor's own
	r.Eflags, want.Eflags = r.Eflags&seen, want.Eflags&seen
	if end == arch.UpcallTaken {
		r = want // unchanged where it matters
	}
	if r != want {
		s.t.Fatalf("at +%#x: unwound (%d) to\n%+v, want\n%+v", uint64(at-slotAt), end, r, want)
	}
	if box := s.boxes.Poll(); box != nil {
		s.t.Fatalf("at +%#x: the mailbox is still posted", uint64(at-slotAt))
	}
	copy(s.mem, kept)
}

// run steps the thread through the body to its end or to a breakpoint. The tracer answers
// when the thread has looked at the mailbox for as many times as late.
func (s *stepped) run(how arch.BoxState, late int) amd64.Regs {
	s.t.Helper()
	r := s.before
	traps := map[arch.Addr]bool{s.trap(): true, s.waiting(): true, s.end(): true}
	asked := map[arch.Addr]int{}
	for n := 0; !traps[r.IP()]; n++ {
		if n > 500 {
			s.t.Fatalf("still at +%#x", uint64(r.IP()-slotAt))
		}
		s.pull()
		s.check(r)
		if box := s.boxes.At(arch.Addr(r.Rcx)); box != nil && box.State() == arch.BoxPosted {
			if asked[r.IP()]++; asked[r.IP()] == late && how != arch.BoxFree {
				s.answer(how)
				s.push()
				how = arch.BoxFree
			}
		}
		var sig any
		if r, sig = s.step(r); fmt.Sprint(sig) != "trace/breakpoint trap" {
			s.t.Fatalf("%v at +%#x", sig, uint64(r.IP()-slotAt))
		}
	}
	s.pull()
	if r.IP() != s.end() {
		s.check(r)
		trapped := r
		trapped.Rip++
		s.check(trapped)
	}
	return r
}

func TestUpcallKeepsAndLoadsRegisters(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 1))
	s := newStepped(t, rnd)
	for _, w := range []arch.UpcallWork{
		{RedZone: true}, {RedZone: true, Notes: arch.ReturnWord}, {RedZone: true, Notes: arch.PoppedWord}, {}, {Notes: arch.ReturnWord},
	} {
		s.work.RedZone, s.work.Notes = w.RedZone, w.Notes
		s.assemble()
		s.keepAndLoad(rnd)
	}
}

func (s *stepped) keepAndLoad(rnd *rand.Rand) {
	t := s.t
	t.Helper()
	trap, wait, end := s.trap(), s.waiting(), s.end()
	for _, c := range []struct {
		name  string
		looks bool
		how   arch.BoxState
		late  int
		to    arch.Addr
		want  *amd64.Regs // nil where they stay in the mailbox
	}{
		{"nobody looks", false, arch.BoxFree, 0, trap, &s.before},
		{"nobody answers", true, arch.BoxFree, 0, trap, &s.before},
		{"answered at once", true, arch.BoxAnswered, 1, end, &s.after},
		{"answered late", true, arch.BoxAnswered, 3, end, &s.after},
		{"declined", true, arch.BoxDeclined, 2, trap, &s.before},
		{"called", true, arch.BoxCalled, 1, wait, nil},
		{"handlers take long", true, arch.BoxTaken, 2, wait, nil},
	} {
		for range 4 {
			s.random(rnd)
			s.boxes.SetLooking(c.looks)
			s.push()
			red := s.get(arch.Addr(s.before.Rsp-128), 128)
			r := s.run(c.how, c.late)
			if r.IP() != c.to {
				t.Fatalf("%s: came to +%#x, want +%#x", c.name, uint64(r.IP()-slotAt), uint64(c.to-slotAt))
			}
			if c.want == nil {
				s.unwaited(r, c.how)
				continue
			}
			want := *c.want
			want.Rip = uint64(c.to)
			if r != want {
				t.Fatalf("%s: registers\n%+v, want\n%+v", c.name, r, want)
			}
			if got := s.get(arch.Addr(s.before.Rsp-128), 128); s.work.RedZone && string(got) != string(red) {
				t.Fatalf("%s: the red zone has changed", c.name)
			}
			s.free()
		}
	}
}

// TestUpcallsNoteAtTheEndsOfPages: also where what would be noted is not mapped.
func TestUpcallsNoteAtTheEndsOfPages(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 4))
	s := newStepped(t, rnd)
	s.boxes.SetLooking(true)
	for _, notes := range []arch.StackWord{arch.ReturnWord, arch.PoppedWord} {
		s.work.Notes = notes
		s.assemble()
		for _, page := range []uint64{stackAt + 0x8000, stackAt + area} {
			for _, off := range []uint64{0, 1, 7, 8, 152, 159, 160, 161, 167, 168, 176} {
				s.random(rnd)
				if s.before.Rsp = page + off; page == stackAt+area {
					s.before.Rsp = page - off
				}
				s.push()
				if r := s.run(arch.BoxAnswered, 1); r.IP() != s.end() {
					t.Fatalf("with rsp %#x: came to +%#x", s.before.Rsp, uint64(r.IP()-slotAt))
				}
				s.free()
			}
		}
	}
}

// unwaited has the tracer finish the upcall of a thread at the breakpoint of Waits.
func (s *stepped) unwaited(r amd64.Regs, how arch.BoxState) {
	s.t.Helper()
	box := s.body.Box(&r)
	if box == nil || box.State() != how {
		s.t.Fatalf("no mailbox, or in the wrong state")
	}
	if how == arch.BoxTaken {
		s.handle(box, arch.BoxAnswered)
	}
	r.Rip++
	end, _, err := s.body.Unwind(slotAt, &r, s.cpu)
	if err != nil || end != arch.UpcallDone {
		s.t.Fatalf("unwound: %d, %v", end, err)
	}
	s.free()
}

// free checks that all mailboxes are, and makes them so in the target.
func (s *stepped) free() {
	s.t.Helper()
	for i := range upcallBoxes {
		if got := s.boxes.At(dataAt + arch.Addr(i*256)).State(); got != arch.BoxFree {
			s.t.Fatalf("mailbox %d is left in state %d", i, got)
		}
	}
	s.push()
}

func TestUpcallFindsAnotherMailbox(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 2))
	s := newStepped(t, rnd)
	s.boxes.SetLooking(true)
	s.push()
	for n := 0; ; n++ {
		if r := s.run(arch.BoxFree, 0); r.IP() != s.trap() || n > 3 {
			t.Fatalf("round %d ends at +%#x", n, uint64(r.IP()-slotAt))
		}
		box := s.used()
		if box == nil {
			if n != 3 {
				t.Fatalf("%d mailboxes were tried, want 3", n)
			}
			return
		}
	}
}

// used occupies the mailbox that the thread, stopped in front of its posting it, uses.
func (s *stepped) used() arch.Mailbox {
	s.t.Helper()
	r := s.before
	for r.IP() != s.trap() {
		s.pull()
		if box := s.boxes.At(arch.Addr(r.Rcx)); box != nil && box.State() == arch.BoxPosted && box.Take() {
			s.push()
			return box
		}
		r, _ = s.step(r)
	}
	return nil
}

func TestUpcallTellsWhatChanged(t *testing.T) {
	mem := make([]byte, code.Arch{}.UpcallSize(1))
	boxes := code.Arch{}.Mailboxes(mem, dataAt, 1)
	for _, c := range []struct {
		reg  string
		v    uint64
		want arch.BoxState
	}{
		{"rax", 7, arch.BoxAnswered}, {"rsp", 7, arch.BoxAnswered}, {"eflags", 0x8d5, arch.BoxAnswered},
		{"eflags", 0x400, arch.BoxCalled}, {"fs_base", 8, arch.BoxCalled}, {"gs_base", 8, arch.BoxCalled},
		{"cs", 0x23, arch.BoxCalled}, {"es", 0x2b, arch.BoxCalled}, {"orig_rax", 1, arch.BoxCalled},
	} {
		box := boxes.At(dataAt)
		mem[224] = byte(arch.BoxPosted)
		if !box.Take() {
			t.Fatal("not taken")
		}
		box.Regs().Set(c.reg, c.v)
		if box.Answer(); box.State() != c.want {
			t.Errorf("%s changed: state %d, want %d", c.reg, box.State(), c.want)
		}
		box.Free()
	}
}
