package procfs

import (
	"bufio"
	"bytes"
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
func ReadStatus(pid, tid int) (Status, error) {
	file := path(pid, tid, "status")
	s, short, err := brief(file, func(b []byte) (Status, error) {
		var p statusParser
		for len(b) > 0 {
			line, rest, _ := bytes.Cut(b, []byte("\n"))
			if b = rest; len(line) > longLine {
				continue
			}
			if err := p.line(line); err != nil {
				return Status{}, err
			}
		}
		return p.status()
	})
	if short {
		return s, err
	}
	return load(file, ParseStatus)
}

// ParseStatus parses a status file. Keys it does not know are passed over; a
// malformed value of one it knows gives an error that matches ErrFormat.
func ParseStatus(r io.Reader) (Status, error) {
	var p statusParser
	for line, err := range shortLines(r) {
		if err != nil {
			return Status{}, err
		}
		if err := p.line(line); err != nil {
			return Status{}, err
		}
	}
	return p.status()
}

// line takes one line, without its end.
func (p *statusParser) line(line []byte) error {
	key, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return nil
	}
	if value = bytes.TrimPrefix(value, []byte("\t")); string(key) != "Name" {
		value = bytes.TrimSpace(value)
	}
	if !p.set(key, value) {
		return fmt.Errorf("%w: status: %s: %q", ErrFormat, key, value)
	}
	return nil
}

// status is what all lines together say.
func (p *statusParser) status() (Status, error) {
	s := p.s
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

// longLine is more than what a line has that anybody wants to know of, in bytes.
const longLine = 4096

// shortLines are the lines of r that have no more than longLine. Of the others, such as that of 65536 groups, nobody wants to know.
func shortLines(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := bufio.NewReaderSize(r, longLine)
		for {
			line, err := in.ReadSlice('\n')
			text := bytes.TrimSuffix(line, []byte("\n"))
			for errors.Is(err, bufio.ErrBufferFull) {
				text = nil
				_, err = in.ReadSlice('\n')
			}
			if err != nil && err != io.EOF {
				yield(nil, err)
				return
			}
			if !yield(text, nil) || err == io.EOF {
				return
			}
		}
	}
}

type statusParser struct {
	s                 Status
	sawVM, sawKthread bool
}

// set stores one line; false means that the value is malformed.
func (p *statusParser) set(key, value []byte) bool {
	s, ok := &p.s, true
	switch string(key) {
	case "Name":
		s.Name = unescapeName.Replace(string(value))
	case "State":
		if ok = len(value) > 0; ok {
			s.State = value[0]
		}
	case "Uid":
		ok = fourInts(value, &s.UIDs)
	case "Gid":
		ok = fourInts(value, &s.GIDs)
	case "VmSize":
		p.sawVM = true
	case "Kthread":
		p.sawKthread, s.KernelThread = true, string(value) == "1"
	case "NoNewPrivs":
		s.NoNewPrivs = string(value) == "1"
	case "CapEff":
		ok = hexBits(value, &s.CapEff)
	case "x86_Thread_features":
		for f := range bytes.FieldsSeq(value) {
			s.ShadowStack = s.ShadowStack || string(f) == "shstk"
		}
	default:
		return p.setNumber(key, value)
	}
	return ok
}

func (p *statusParser) setNumber(key, value []byte) bool {
	if dst := p.number(key); dst != nil {
		n, err := strconv.Atoi(string(value))
		*dst = n
		return err == nil
	}
	if dst := p.sigSet(key); dst != nil {
		return hexBits(value, (*uint64)(dst))
	}
	return true
}

func (p *statusParser) number(key []byte) *int {
	switch string(key) {
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

func (p *statusParser) sigSet(key []byte) *SigSet {
	switch string(key) {
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

func hexBits(s []byte, dst *uint64) bool {
	v, err := strconv.ParseUint(string(s), 16, 64)
	*dst = v
	return err == nil
}

func fourInts(s []byte, dst *[4]int) bool {
	i := 0
	for f := range bytes.FieldsSeq(s) {
		n, err := strconv.Atoi(string(f))
		if err != nil || i == len(dst) {
			return false
		}
		dst[i] = n
		i++
	}
	return i == len(dst)
}
