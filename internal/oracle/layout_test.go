//go:build linux && amd64

package oracle_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// Where testdata/harness.c has its memory. Everything is below 4 GiB, so that
// 32-bit addresses reach it, and inside a reserved range, so that nothing that
// gokprobe maps comes to lie where a sum of two addresses points.
const (
	reservedAt = 0x40000000
	codeAt     = 0x40100000
	landAt     = 0x40300000
	landSize   = 0x10000
	dataAt     = 0x41000000
	data2At    = 0x42000000
	stackAt    = 0x43000000
	areaSize   = 0x2000
	fsBase     = dataAt + 0x800
	gsBase     = data2At + 0x400
	farHole    = 0xf0000000 // out of a slot's reach: nothing is ever mapped there

	batch    = 512 // cases
	stride   = 512 // bytes of code for each
	lead     = 192 // of them before the instruction, so that a rel8 stays in its own
	nPatches = 8
	nDiffs   = 16
	nBefore  = 2
	nAlarms  = 256
	xsaveMax = 3072
)

// Order of the registers, that of struct sigcontext.
const (
	r8 = iota
	r9
	r10
	r11
	r12
	r13
	r14
	r15
	rdi
	rsi
	rbp
	rbx
	rdx
	rax
	rcx
	rsp
	nRegs
)

var regNames = [nRegs]string{"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp"}

type word struct{ At, Value uint64 }

// input is the state that a case starts from.
type input struct {
	Reg         [nRegs]uint64
	RIP, RFlags uint64
	Signals     uint64 // how many to take; 0 if there is no such case
	NPatches    uint64
	Patch       [nPatches]word // memory that is this case's own
	XSave       [xsaveMax]byte
}

// taken is a signal from which the case went on.
type taken struct{ Signo, Code, Addr, RIP, RFlags uint64 }

// output is the state that a case ended in, as its signal handler saw it.
type output struct {
	Signo, Code, Addr uint64
	Reg               [nRegs]uint64
	RIP, RFlags       uint64
	Selectors         uint64 // cs, ss, fs, gs of the signal frame
	Err, TrapNo       uint64
	OldMask, CR2      uint64
	Seg               [4]uint64      // ds, es, fs, gs
	Base              [2]uint64      // fs, gs
	Hash, NDiffs      uint64         // of the words of memory that have changed
	Before            [nBefore]taken // earlier signals
	Diff              [nDiffs]word
	XSave             [xsaveMax]byte
}

// shared is what the test and the harness talk through.
type shared struct {
	Current, Taken uint64
	XFeatures      uint64 // components of the XSAVE images
	XSize          uint64
	KeepsPointers  uint64    // XSAVE keeps x87 pointers without a pending exception
	Own            [3]uint64 // signal, rip, address of a fault in the harness itself
	NAlarms        uint64
	Alarms         [nAlarms]uint64 // where alarms have come, if outside of what the test maps
	Feature        [8]struct{ Offset, Size uint64 }
	_              [4096 - 72 - 8*nAlarms - 16*8]byte
	Code           [batch * stride]byte
	Memory         [3][areaSize / 8]uint64
	In             [batch]input
	Out            [batch]output
}

// caseAt is the address of the n-th instruction of a batch.
func caseAt(n int) arch.Addr { return codeAt + arch.Addr(n*stride+lead) }

// harness is a running harness.c.
type harness struct {
	*shared
	prog *testprog.Prog
}

func buildHarness(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "harness")
	// It stands where no part of an address of its memory points.
	gcc := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-ffreestanding", "-fno-stack-protector",
		"-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-mgeneral-regs-only", "-fno-pie", "-no-pie",
		"-nostdlib", "-static", "-Wl,-Ttext-segment=0x26a50000", "-o", bin, "testdata/harness.c")
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("building the harness: %v\n%s", err, out)
	}
	return bin
}

func startHarness(t testing.TB, bin string) *harness {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "shared"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int(unsafe.Sizeof(shared{}))
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return &harness{(*shared)(unsafe.Pointer(&mem[0])), testprog.Start(fragile{t}, bin, f.Name())}
}

// run has it run all cases, by the command run or pelt, and returns what became of
// them.
func (h *harness) run(command string) ([]output, error) {
	if err := h.do(command); err != nil {
		return nil, err
	}
	return append([]output(nil), h.Out[:]...), nil
}

// do gives a command. The error says that the harness has ended, and where.
func (h *harness) do(command string) (err error) {
	defer func() {
		p := recover()
		if ended, ok := p.(error); ok && errors.Is(ended, errEnded) {
			err = fmt.Errorf("%w in case %d of the batch; fault of its own: %#x", errEnded, h.Current, h.Own)
		} else if p != nil {
			panic(p)
		}
	}()
	hung := time.AfterFunc(patience, func() { _ = h.prog.Signal(syscall.SIGKILL) })
	defer hung.Stop()
	h.prog.Do(command, "done")
	return nil
}

// patience bounds one run; it only ends cases that hang.
const patience = 5 * time.Minute

var errEnded = errors.New("the harness ended")

// fragile is a test that lives on when its program does not.
type fragile struct{ testing.TB }

func (f fragile) Fatalf(format string, args ...any) {
	f.Logf(format, args...)
	panic(errEnded)
}
