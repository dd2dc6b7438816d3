package amd64_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// Where testdata/upcalls.c has what, and what its control words mean.
const (
	raceData, raceCode = 0x50000000, 0x60000000
	raceBoxes          = 0x1000 // behind the control words
	raceCodeOffset     = 0x8000

	wordEntry, wordTrap, wordWait, wordStart, wordThreads, wordHits = 0, 1, 2, 3, 4, 5
	wordTrapped, wordWaited, wordDeclined, wordLanding              = 6, 7, 8, 9
)

// race is a process that runs through an upcall's body on many threads, and its memory.
type race struct {
	t     *testing.T
	mem   []byte
	boxes arch.Mailboxes
	cmd   *exec.Cmd
	done  chan error
}

func (r *race) word(n int) uint64 { return binary.LittleEndian.Uint64(r.mem[8*n:]) }

func (r *race) set(n int, v uint64) { binary.LittleEndian.PutUint64(r.mem[8*n:], v) }

func startRace(t *testing.T, boxes, threads, hits int) *race {
	t.Helper()
	requires(t, "gcc")
	dir := t.TempDir()
	program, file := filepath.Join(dir, "upcalls"), filepath.Join(dir, "memory")
	if out, err := exec.Command("gcc", "-O1", "-static", "-pthread", "-o", program, "testdata/upcalls.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(raceCodeOffset + 0x1000); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, raceCodeOffset+0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	r := &race{t: t, mem: mem, cmd: exec.Command(program, file), done: make(chan error, 1)}
	r.boxes = code.Arch{}.Mailboxes(mem[raceBoxes:raceCodeOffset], raceData+raceBoxes, boxes)
	r.code()
	r.set(wordThreads, uint64(threads))
	r.set(wordHits, uint64(hits))
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() { r.cmd.Process.Kill(); unix.Munmap(mem) })
	return r
}

// code writes the body and a jump to where the program goes on.
func (r *race) code() {
	r.t.Helper()
	body, err := code.Arch{}.UpcallBody(arch.UpcallWork{Boxes: r.boxes, Site: raceCode, RedZone: true}).Assemble(raceCode)
	if err != nil {
		r.t.Fatal(err)
	}
	n := copy(r.mem[raceCodeOffset:], body.Code)
	jump := append(r.mem[raceCodeOffset+n:raceCodeOffset+n], 0xff, 0x25) // jmp *landing(%rip)
	binary.LittleEndian.AppendUint32(jump, uint32(raceData+8*wordLanding-(raceCode+n+6)))
	r.set(wordEntry, raceCode)
	r.set(wordTrap, uint64(stopFor(body.Stops, arch.StopUntaken).At))
	r.set(wordWait, uint64(stopFor(body.Stops, arch.StopWaiting).At))
	r.set(wordStart, uint64(raceCode+n))
}

// ended tells whether the program has, and how.
func (r *race) ended() bool {
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("the program: %v", err)
		}
		return true
	default:
		return false
	}
}

// handleAs does to registers what handle in upcalls.c does.
func handleAs(r *amd64.Regs) {
	r.Rdi = 3*r.Rdi + 1
	r.R15 ^= 0x5555
	r.Rax += 7
	r.Rcx ^= r.Rdx
	r.Eflags ^= 0x8d5
	if r.Rdi&2 != 0 {
		r.Rsp -= 16
	}
}

// TestUpcallsAreHandledOnce has threads race against a tracer that answers, declines,
// calls, is late and looks away: each hit is handled once, by the tracer or at a trap, with the
// registers that the thread had, and goes on with those that the handler left.
func TestUpcallsAreHandledOnce(t *testing.T) {
	for _, c := range []struct {
		name           string
		boxes, threads int
		hits           int
		fair           bool // the tracer answers at once, and looks
	}{
		{"one thread", 64, 1, 10_000, true},
		{"eight threads", 64, 8, 1_000, true},
		{"one thread, a tracer that is unsteady", 4, 1, 3_000, false},
		{"eight threads, a tracer that is unsteady", 4, 8, 1_000, false},
		{"more threads than mailboxes", 1, 4, 1_000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			answered := uint64(0)
			for range 200 { // a tracer that has no processor meanwhile answers none
				if answered += raceOnce(t, c.boxes, c.threads, c.hits, c.fair); answered > 0 {
					return
				}
			}
			t.Error("no upcall was answered")
		})
	}
}

// raceOnce returns how many upcalls were answered.
func raceOnce(t *testing.T, boxes, threads, hits int, fair bool) (handled uint64) {
	r := startRace(t, boxes, threads, hits)
	handled = r.serve(fair)
	total := uint64(threads * hits)
	if got := handled + r.word(wordTrapped) + r.word(wordDeclined); got != total {
		t.Errorf("%d hits were handled, of %d", got, total)
	}
	t.Logf("of %d hits %d were answered, %d trapped, %d waited", total, handled, r.word(wordTrapped), r.word(wordWaited))
	for i := range boxes {
		if s := r.boxes.At(raceData + raceBoxes + arch.Addr(256*i)).State(); s != arch.BoxFree {
			t.Errorf("mailbox %d is left in state %d", i, s)
		}
	}
	return handled
}

// serve plays the tracer until the program ends, and returns how many upcalls it has handled.
func (r *race) serve(fair bool) (handled uint64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r.boxes.SetPatience(20_000)
	r.boxes.SetLooking(true)
	for n := 0; ; n++ {
		box := r.boxes.Poll()
		if box == nil {
			if n%64 == 0 && r.ended() {
				return handled
			}
			if n%1024 == 0 && !fair {
				r.unsteady(rnd)
			}
			continue
		}
		if !fair {
			r.unsteady(rnd)
		}
		regs := box.Regs().(*amd64.Regs)
		if regs.IP() != raceCode+1 {
			r.t.Fatalf("the mailbox says %s", regs.IP())
		}
		if !fair && rnd.IntN(4) == 0 {
			box.Decline()
			continue
		}
		handled++
		handleAs(regs)
		if !fair && rnd.IntN(4) == 0 {
			box.Call()
			continue
		}
		box.Answer()
	}
}

// unsteady changes what the threads go by.
func (r *race) unsteady(rnd *rand.Rand) {
	r.boxes.SetPatience([]uint32{50, 2_000, 50_000, 500_000}[rnd.IntN(4)])
	r.boxes.SetLooking(rnd.IntN(8) > 0)
	for range rnd.IntN(5) {
		runtime.Gosched() // threads lose patience
	}
	r.boxes.SetLooking(true)
}
