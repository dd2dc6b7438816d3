package bench

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// kernelProbe measures the function under the kernel's own uprobe or uretprobe, with a BPF
// program that counts and nothing else.
func (j job) kernelProbe() (ns float64, err error) {
	t, err := j.target()
	if err != nil {
		return 0, err
	}
	defer t.end()
	c, err := newBPFCounter()
	if err != nil {
		return 0, refused("loading a BPF program", err)
	}
	defer c.close()
	l, err := j.uprobe(t, c.prog)
	if err != nil {
		return 0, refused("placing a uprobe", err)
	}
	defer l.Close()
	ns, n, err := j.calls(t, nil)
	if err != nil {
		return 0, err
	}
	if got, err := c.count(); err != nil || got != n {
		return 0, fmt.Errorf("the BPF program counted %d hits of %d: %w", got, n, err)
	}
	return ns, nil
}

func (j job) uprobe(t *target, p *ebpf.Program) (link.Link, error) {
	off, err := offsetOf(j.Measure.Function)
	if err != nil {
		return nil, err
	}
	ex, err := link.OpenExecutable(j.Image)
	if err != nil {
		return nil, err
	}
	opts := &link.UprobeOptions{Address: off, PID: t.pid()} // in the image's file addresses are offsets
	if j.Measure.Return {
		return ex.Uretprobe("", p, opts)
	}
	return ex.Uprobe("", p, opts)
}

// refused makes an error of the kernel's that says that it does not do such things, or not
// for us, one that is no failure.
func refused(what string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return &unavailable{fmt.Sprintf("not permitted: %s needs CAP_BPF and CAP_PERFMON, or root", what)}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, link.ErrNotSupported), errors.Is(err, unix.ENOSYS),
		errors.Is(err, fs.ErrNotExist):
		return &unavailable{fmt.Sprintf("not supported by this kernel: %s: %v", what, err)}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// bpfCounter is a program that adds one to the processor's element of a map.
type bpfCounter struct {
	prog  *ebpf.Program
	cells *ebpf.Map
}

func newBPFCounter() (*bpfCounter, error) {
	_ = rlimit.RemoveMemlock() // which kernels before 5.11 need
	cells, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "MIT",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, cells.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	})
	if err != nil {
		cells.Close()
		return nil, err
	}
	return &bpfCounter{prog, cells}, nil
}

func (c *bpfCounter) count() (sum uint64, err error) {
	var each []uint64
	if err := c.cells.Lookup(uint32(0), &each); err != nil {
		return 0, err
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

func (c *bpfCounter) close() {
	c.prog.Close()
	c.cells.Close()
}
