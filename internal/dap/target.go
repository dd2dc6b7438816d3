package dap

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/trace"
)

// Target is the arguments of an attach request.
type Target struct {
	// Process is a process ID, or the name of the only process that has it.
	Process   string
	Follow    bool // its children too
	Snapshots bool // breakpoints without a text show what was there, at a hit
	Rate      int  // lines a second of each log point; 0 for all

	remaps []remap
}

// defaultRate is how many lines a second a log point prints.
const defaultRate = 100

// remap replaces the beginning of paths of the client's by one of the debug information's.
type remap struct{ From, To string }

// readTarget reads the arguments of an attach request. Editors add some of their own.
func readTarget(arguments json.RawMessage) (t Target, err error) {
	var a struct {
		PID            any // a number, or its text from an editor's dialogue
		ProcessID      any
		Process        string
		Follow         bool
		Snapshots      bool
		Rate           *int
		SubstitutePath []remap
	}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &a); err != nil {
			return t, fmt.Errorf("the arguments of attach can't be read: %w", err)
		}
	}
	t = Target{Follow: a.Follow, Snapshots: a.Snapshots, Rate: defaultRate, remaps: a.SubstitutePath}
	if a.Rate != nil {
		t.Rate = *a.Rate
	}
	if t.Rate < 0 {
		return t, fmt.Errorf("rate is a number of lines and can't be negative")
	}
	for _, id := range []any{a.PID, a.ProcessID} {
		if id == nil || t.Process != "" {
			continue
		}
		if t.Process, err = readPID(id); err != nil {
			return t, err
		}
	}
	if t.Process == "" {
		t.Process = a.Process
	}
	if t.Process == "" {
		return t, fmt.Errorf(`no process is named: give its number as "pid", or its name as "process"`)
	}
	return t, nil
}

func readPID(id any) (string, error) {
	switch n := id.(type) {
	case float64:
		if n >= 1 && n < 1<<31 && n == float64(int(n)) {
			return strconv.Itoa(int(n)), nil
		}
	case string:
		if i, err := strconv.Atoi(n); err == nil && i > 0 {
			return n, nil
		}
	}
	return "", fmt.Errorf("pid %s is no process ID", escape.Quote(fmt.Sprint(id)))
}

// Session is a process that is traced, as far as clients need it. Hold makes one.
type Session interface {
	PID() int
	// Probe is that of trace.Session, with one SPEC.
	Probe(ctx context.Context, spec string, wants ...trace.Want) (Probe, error)
	// Sources and Line are those of symbols.Table.
	Sources(ctx context.Context, base string) ([]string, error)
	Line(a arch.Addr) (file string, line int, ok bool)
	Threads() []Thread
	Done() <-chan struct{}
	// Exit is the exit status of a process that has ended.
	Exit() (code int, ended bool)
	Close() error
}

// Probe is a *trace.Probe.
type Probe interface {
	Stats() trace.Stats
	Close() error
}

// Thread is one of the process's.
type Thread struct {
	TID  int
	Name string
}

// Hold makes a Session of a traced process. Close closes it.
func Hold(s *trace.Session) Session { return held{s} }

type held struct{ *trace.Session }

func (h held) PID() int { return h.Kprobes().PID() }

func (h held) Probe(ctx context.Context, spec string, wants ...trace.Want) (Probe, error) {
	return h.ProbeContext(ctx, []string{spec}, wants...)
}

func (h held) Sources(ctx context.Context, base string) ([]string, error) {
	return h.Kprobes().Symbols().Sources(ctx, base)
}

func (h held) Line(a arch.Addr) (file string, line int, ok bool) {
	return h.Kprobes().Symbols().Line(a)
}

func (h held) Threads() (all []Thread) {
	tids, err := procfs.Tasks(h.PID())
	if err != nil {
		return nil
	}
	for _, tid := range tids {
		if name, err := procfs.Comm(h.PID(), tid); err == nil {
			all = append(all, Thread{tid, name})
		}
	}
	return all
}

func (h held) Exit() (code int, ended bool) {
	e := h.Kprobes().Exit()
	if e == nil {
		return 0, false
	}
	return e.Code, true
}
