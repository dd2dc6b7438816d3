package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trampoline"
)

// read asks for everything that can be asked of a file, as the command's parts do.
func read(path string) string {
	if pid, ok := strings.CutPrefix(path, recoverCommand); ok {
		return recoverProcess(pid)
	}
	if b := begin(path); bytes.HasPrefix(b, []byte(trampoline.Magic)) {
		return readJournal(b)
	}
	t, err := symbols.OpenFile(path)
	if err != nil {
		return err.Error()
	}
	defer t.Close()
	said := []any{t.Modules()[0].BuildID}
	for _, spec := range []string{"main", "visible", "ma*", "nope", "visible+*", "names.c:11", "ns::f(int)", "main.F[...]", "plain.go:13", "params.c:20"} {
		locs, err := t.Resolve(context.Background(), spec)
		said = append(said, len(locs), err != nil)
	}
	p := kprobes.NewPreview(t, t.FileMemory())
	all := t.Symbols("")
	said = append(said, len(all))
	for i := 0; i < len(all); i += 1 + len(all)/40 {
		ask(t, p, all[i].Addr)
	}
	for _, m := range t.Modules() {
		for _, r := range m.Text {
			for at := r.Start; at < r.End; at = at.Add(int64(r.Len()/8 + 1)) {
				ask(t, p, at)
			}
		}
	}
	t.Sections("__rseq_cs")
	return fmt.Sprint(said...)
}

// recoverCommand is what the child is told in place of a file, in front of a PID.
const recoverCommand = "recover "

func recoverProcess(pid string) string {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err.Error()
	}
	r, err := kprobes.Recover(context.Background(), n)
	return fmt.Sprintf("%+v, %v", r, err)
}

// begin is the first megabyte of a file.
func begin(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	n, _ := io.ReadFull(f, b)
	return b[:n]
}

func ask(t *symbols.Table, p *kprobes.Preview, at arch.Addr) {
	t.Lookup(at + 1)
	t.Function(at)
	t.Line(at)
	t.Inlined(at)
	t.Unwindable(at + 1)
	t.GoFunction(at)
	t.GoroutineEnd(at)
	t.DataInText(at)
	_ = p.Optimizable(at) // the reason is one of many
	r := &regs{ip: at}
	t.Backtrace(r, zeroes{}, 20)
	params, err := t.Params(at)
	if err != nil {
		return
	}
	results, _ := t.Results(at)
	for _, x := range append(params, results...) {
		x.Value(r, zeroes{})
		x.Storable()
		if end, err := x.At("value", symbols.Step{Member: "next"}, symbols.Step{Member: "inner"}, symbols.Step{Kind: symbols.StepElement, Index: 2}); err == nil {
			end.Value(r, zeroes{})
			end.Datum()
		}
	}
}

// zeroes is memory in which everything is 0, so that every pointer leads on.
type zeroes struct{}

func (zeroes) ReadMemory(_ arch.Addr, p []byte) error { clear(p); return nil }
func (zeroes) WriteMemory(arch.Addr, []byte) error    { return nil }

// regs is registers that all hold an address, but for the instruction pointer.
type regs struct {
	arch.Regs
	ip arch.Addr
}

func (r *regs) IP() arch.Addr             { return r.ip }
func (r *regs) SP() arch.Addr             { return 1 << 40 }
func (r *regs) FP() arch.Addr             { return 1 << 40 }
func (r *regs) Get(string) (uint64, bool) { return 1 << 40, true }

// readJournal reads what a killed tracer is said to have left: b is mapped over and over.
func readJournal(b []byte) string {
	m := image(b)
	h, err := trampoline.Inspect(m, 0)
	if err != nil || len(h.Arenas) == 0 {
		return fmt.Sprint(err)
	}
	a := trampoline.NewAllowance(math.MaxInt)
	records, err1 := h.Records(m, a)
	detours, err2 := h.Detours(m, a)
	_, _, err3 := h.Guard(m)
	found := 0
	for i := range 1000 { // of threads and contexts
		at := h.Arenas[0].Code.Start + arch.Addr(i)
		_, ok1, _ := detours.Find(m, at)
		_, _, ok2, _ := h.Site(m, at)
		_, ok3, _ := h.ResumeAt(m, at)
		if ok1 || ok2 || ok3 {
			found++
		}
	}
	return fmt.Sprint(len(records), err1, detours.Len(), err2, err3, found)
}

// image is memory in which b is mapped again and again, at all addresses.
type image []byte

func (m image) ReadMemory(at arch.Addr, p []byte) error {
	for i := range p {
		p[i] = m[(uint64(at)+uint64(i))%uint64(len(m))]
	}
	return nil
}

func (m image) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}
