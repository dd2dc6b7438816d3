package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// SigSet is a set of signals: bit n-1 stands for signal n.
type SigSet uint64

// Has reports whether signal sig, counted from 1, is in s.
func (s SigSet) Has(sig int) bool { return sig >= 1 && sig <= 64 && s>>(sig-1)&1 == 1 }

// Status holds the fields of /proc/PID/status that a tracer asks for. A field
// that the kernel does not print is zero.
type Status struct {
	Name      string
	State     byte // R running, S sleeping, D disk sleep, T stopped, t tracing stop, Z zombie, X dead, I idle
	Tgid, Pid int  // process id and thread id
	PPid      int
	TracerPid int // thread id of the tracing thread, 0 if none; its own Tgid names the process

	UIDs, GIDs [4]int // real, effective, saved, file system
	Threads    int

	SigPnd, ShdPnd         SigSet // pending for the thread, for the process
	SigBlk, SigIgn, SigCgt SigSet // blocked (by the thread), ignored, caught (by the process)

	CapEff         uint64 // effective capabilities, bit n for capability n
	NoNewPrivs     bool
	Seccomp        int // 0 disabled, 1 strict, 2 filter
	SeccompFilters int

	ShadowStack  bool // the thread runs with a user shadow stack
	KernelThread bool
}

// ReadStatus reads the status of thread tid of process pid. A tid of 0 stands
// for the leader.
func ReadStatus(pid, tid int) (Status, error) { return load(path(pid, tid, "status"), ParseStatus) }

// ParseStatus parses a status file. Keys it does not know are passed over; a
// malformed value of one it knows gives an error that matches ErrFormat.
func ParseStatus(r io.Reader) (Status, error) {
	p := statusParser{s: new(Status)}
	for line, err := range shortLines(r) {
		if err != nil {
			return Status{}, err
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if value = strings.TrimPrefix(value, "\t"); key != "Name" {
			value = strings.TrimSpace(value)
		}
		if !p.set(key, value) {
			return Status{}, fmt.Errorf("%w: status: %s: %q", ErrFormat, key, value)
		}
	}
	s := *p.s
	if s.Pid == 0 {
		return Status{}, fmt.Errorf("%w: status: no Pid line", ErrFormat)
	}
	// Before Linux 6.8 no line says it: kernel threads have no memory map, and
	// kthreadd (2) or nobody as parent. A zombie has no memory map either.
	if !p.sawKthread && !p.sawVM && s.State != 'Z' && s.State != 'X' {
		s.KernelThread = s.PPid == 2 || s.Pid == 2 && s.PPid == 0
	}
	return s, nil
}

// shortLines are the lines of r that have no more than 4 KiB. Of the others, such as that of 65536 groups, nobody wants to know.
func shortLines(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadSlice('\n')
			text := strings.TrimSuffix(string(line), "\n")
			for errors.Is(err, bufio.ErrBufferFull) {
				text = ""
				_, err = in.ReadSlice('\n')
			}
			if err != nil && err != io.EOF {
				yield("", err)
				return
			}
			if !yield(text, nil) || err == io.EOF {
				return
			}
		}
	}
}

type statusParser struct {
	s                 *Status
	sawVM, sawKthread bool
}

// set stores one line; false means that the value is malformed.
func (p *statusParser) set(key, value string) bool {
	s, ok := p.s, true
	switch key {
	case "Name":
		s.Name = unescapeName.Replace(value)
	case "State":
		if ok = value != ""; ok {
			s.State = value[0]
		}
	case "Uid":
		ok = fourInts(value, &s.UIDs)
	case "Gid":
		ok = fourInts(value, &s.GIDs)
	case "VmSize":
		p.sawVM = true
	case "Kthread":
		p.sawKthread, s.KernelThread = true, value == "1"
	case "NoNewPrivs":
		s.NoNewPrivs = value == "1"
	case "CapEff":
		ok = hexBits(value, &s.CapEff)
	case "x86_Thread_features":
		for f := range strings.FieldsSeq(value) {
			s.ShadowStack = s.ShadowStack || f == "shstk"
		}
	default:
		return p.setNumber(key, value)
	}
	return ok
}

func (p *statusParser) setNumber(key, value string) bool {
	if dst := p.number(key); dst != nil {
		n, err := strconv.Atoi(value)
		*dst = n
		return err == nil
	}
	if dst := p.sigSet(key); dst != nil {
		return hexBits(value, (*uint64)(dst))
	}
	return true
}

func (p *statusParser) number(key string) *int {
	switch key {
	case "Tgid":
		return &p.s.Tgid
	case "Pid":
		return &p.s.Pid
	case "PPid":
		return &p.s.PPid
	case "TracerPid":
		return &p.s.TracerPid
	case "Threads":
		return &p.s.Threads
	case "Seccomp":
		return &p.s.Seccomp
	case "Seccomp_filters":
		return &p.s.SeccompFilters
	}
	return nil
}

func (p *statusParser) sigSet(key string) *SigSet {
	switch key {
	case "SigPnd":
		return &p.s.SigPnd
	case "ShdPnd":
		return &p.s.ShdPnd
	case "SigBlk":
		return &p.s.SigBlk
	case "SigIgn":
		return &p.s.SigIgn
	case "SigCgt":
		return &p.s.SigCgt
	}
	return nil
}

// unescapeName undoes what proc_task_name does to a name.
var unescapeName = strings.NewReplacer(`\\`, `\`, `\n`, "\n")

func hexBits(s string, dst *uint64) bool {
	v, err := strconv.ParseUint(s, 16, 64)
	*dst = v
	return err == nil
}

func fourInts(s string, dst *[4]int) bool {
	f := strings.Fields(s)
	if len(f) != 4 {
		return false
	}
	for i := range f {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return false
		}
		dst[i] = n
	}
	return true
}
