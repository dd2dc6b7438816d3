package event

import (
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// JSON prints records as JSON Lines: one object a line, keys in a fixed order.
type JSON struct {
	lineWriter
	message func(*Hit) string // nil for none
}

var _ Printer = (*JSON)(nil)

// NewJSON returns a printer of JSON Lines on w.
//
// The keys are, in this order:
//
//   - Of a hit: type, time (RFC 3339, UTC, nanoseconds), pid, tid, comm, probe, kind, addr,
//     symbol, module, message at a log point, args, and locals and globals if they are wanted. At a return ret and duration_ns follow, stops and
//     duration_min_ns if the thread was stopped in the call, and results if their types are
//     known. Then comes stack, if one was taken.
//   - Of an injected call, whose type is "injected": those of a hit, then n, actions, and
//     dry_run if nothing was done.
//   - Of the summary: type, pid, probes, faults if a rule injects, lost. With several processes
//     pid is replaced by processes: pid, comm, hits, nmissed, probes, faults and lost of each.
//   - Behind numbers that are not 0 comes why: misses behind nmissed, losses behind lost, skipped for places that
//     can't be probed. Each is a list of reason and n. A probe has active if calls had not returned at the end.
//
// Addresses are strings in hexadecimal, integers are exact decimals. An argument that could
// not be fetched is null. A float for which JSON has no number is a string.
func NewJSON(w io.Writer) *JSON { return &JSON{lineWriter: lineWriter{w: w}} }

// Saying makes p print what message says of a hit, as the key message behind module; nil for nothing. It returns p.
func (p *JSON) Saying(message func(*Hit) string) *JSON {
	p.message = message
	return p
}

// Hit writes h as one line.
func (p *JSON) Hit(h *Hit) error {
	return p.put(true, func(b []byte) []byte { return append(p.appendHit(b, h), '}', '\n') })
}

// Summary writes s as one line.
func (p *JSON) Summary(s *Summary) error {
	return p.put(false, func(b []byte) []byte { return append(appendSummaryJSON(b, s), '}', '\n') })
}

func (p *JSON) appendHit(b []byte, h *Hit) []byte {
	kind := "hit"
	if h.Injected != nil {
		kind = "injected"
	}
	b = append(append(append(b, `{"type":"`...), kind...), `","time":"`...)
	b = h.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z")
	b = strconv.AppendInt(append(b, `","pid":`...), int64(h.PID), 10)
	b = strconv.AppendInt(append(b, `,"tid":`...), int64(h.TID), 10)
	b = appendJSON(append(b, `,"comm":`...), h.Comm)
	b = appendJSON(append(b, `,"probe":`...), h.Probe)
	b = appendJSON(append(b, `,"kind":`...), h.Kind)
	b = appendHex(append(b, `,"addr":"`...), uint64(h.Addr))
	b = appendJSON(append(b, `","symbol":`...), h.Symbol)
	b = appendJSON(append(b, `,"module":`...), h.Module)
	if p.message != nil {
		b = appendJSON(append(b, `,"message":`...), p.message(h))
	}
	b = appendArgsJSON(append(b, `,"args":`...), h.Args)
	if h.Locals != nil {
		b = appendArgsJSON(append(b, `,"locals":`...), h.Locals)
	}
	if h.Globals != nil {
		b = appendArgsJSON(append(b, `,"globals":`...), h.Globals)
	}
	if h.Ret != nil {
		b = strconv.AppendInt(append(b, `,"ret":`...), *h.Ret, 10)
	}
	if h.Duration != nil {
		b = strconv.AppendInt(append(b, `,"duration_ns":`...), h.Duration.Nanoseconds(), 10)
		if h.Stops > 0 {
			b = strconv.AppendInt(append(b, `,"stops":`...), int64(h.Stops), 10)
			b = strconv.AppendInt(append(b, `,"duration_min_ns":`...), h.DurationMin.Nanoseconds(), 10)
		}
	}
	if h.Results != nil {
		b = appendArgsJSON(append(b, `,"results":`...), h.Results)
	}
	if h.Injected != nil {
		b = appendInjectedJSON(b, h.Injected)
	}
	return appendStackJSON(b, h.Stack)
}

func appendInjectedJSON(b []byte, in *Injected) []byte {
	b = strconv.AppendUint(append(b, `,"n":`...), in.N, 10)
	b = append(b, `,"actions":[`...)
	for i, a := range in.Actions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, a)
	}
	b = append(b, ']')
	if in.DryRun {
		b = append(b, `,"dry_run":true`...)
	}
	return b
}

func appendArgsJSON(b []byte, args []Arg) []byte {
	b = append(b, '{')
	for i := range args {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, args[i].Name)
		b = appendValueJSON(append(b, ':'), &args[i])
	}
	return append(b, '}')
}

func appendStackJSON(b []byte, stack []Frame) []byte {
	if stack == nil {
		return b
	}
	b = append(b, `,"stack":[`...)
	for i := range stack {
		f := &stack[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendHex(append(b, `{"addr":"`...), uint64(f.Addr))
		b = appendJSON(append(b, `","symbol":`...), f.Symbol)
		b = appendJSON(append(b, `,"module":`...), f.Module)
		if f.File != "" {
			b = appendJSON(append(b, `,"file":`...), f.File)
			b = strconv.AppendInt(append(b, `,"line":`...), int64(f.Line), 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendValueJSON(b []byte, a *Arg) []byte {
	switch v := a.Value.(type) {
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendJSON(b, v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return appendJSON(b, strconv.FormatFloat(v, 'g', -1, 64))
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case json.Marshaler:
		j, err := json.Marshal(v)
		if err != nil { // its text is better than no record
			return appendJSON(b, a.Text)
		}
		return append(b, escape.JSON(j)...)
	}
	return append(b, "null"...)
}

func appendSummaryJSON(b []byte, s *Summary) []byte {
	b = append(b, `{"type":"summary"`...)
	if s.Processes == nil {
		b = strconv.AppendInt(append(b, `,"pid":`...), int64(s.PID), 10)
	}
	b = appendProbesJSON(b, s.Probes, s.Processes == nil)
	if s.Processes != nil {
		b = appendProcessesJSON(b, s.Processes)
	}
	if s.Faults != nil {
		b = appendFaultsJSON(b, s.Faults)
	}
	b = strconv.AppendUint(append(b, `,"lost":`...), s.Lost, 10)
	b = appendLossesJSON(appendLossesJSON(b, "losses", s.Losses), "skipped", s.Skipped)
	return appendLossesJSON(b, "unoptimized", s.Unoptimized)
}

// appendLossesJSON writes a member with reasons, if there are any.
func appendLossesJSON(b []byte, name string, all []Loss) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(appendJSON(append(b, ','), name), ":["...)
	for i, l := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(b, `{"reason":`...), l.Reason)
		b = append(strconv.AppendUint(append(b, `,"n":`...), l.N, 10), '}')
	}
	return append(b, ']')
}

// appendProbesJSON writes where each probe is, if that is one place.
func appendProbesJSON(b []byte, probes []ProbeSummary, where bool) []byte {
	b = append(b, `,"probes":[`...)
	for i := range probes {
		p := &probes[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(b, `{"probe":`...), p.Probe)
		b = appendJSON(append(b, `,"kind":`...), p.Kind)
		if where {
			b = append(appendHex(append(b, `,"addr":"`...), uint64(p.Addr)), '"')
		}
		b = appendJSON(append(b, `,"symbol":`...), p.Symbol)
		b = strconv.AppendUint(append(b, `,"hits":`...), p.Hits, 10)
		b = strconv.AppendUint(append(b, `,"nmissed":`...), p.NMissed, 10)
		b = appendLossesJSON(b, "misses", p.Misses)
		if p.Active > 0 {
			b = strconv.AppendUint(append(b, `,"active":`...), p.Active, 10)
		}
		if where {
			b = appendJSON(append(b, `,"mechanism":`...), p.Mechanism)
			b = appendJSON(append(b, `,"reason":`...), p.Reason)
		}
		if p.Decides != "" {
			b = appendJSON(append(b, `,"decides":`...), p.Decides)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendProcessesJSON(b []byte, all []ProcessSummary) []byte {
	b = append(b, `,"processes":[`...)
	for i := range all {
		p := &all[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"pid":`...), int64(p.PID), 10)
		b = appendJSON(append(b, `,"comm":`...), p.Comm)
		b = strconv.AppendUint(append(b, `,"hits":`...), p.Hits, 10)
		b = strconv.AppendUint(append(b, `,"nmissed":`...), p.NMissed, 10)
		b = appendProbesJSON(b, p.Probes, true)
		if p.Faults != nil {
			b = appendFaultsJSON(b, p.Faults)
		}
		b = append(strconv.AppendUint(append(b, `,"lost":`...), p.Lost, 10), '}')
	}
	return append(b, ']')
}

func appendFaultsJSON(b []byte, faults []FaultSummary) []byte {
	b = append(b, `,"faults":[`...)
	for i := range faults {
		f := &faults[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(b, `{"fault":`...), f.Fault)
		b = strconv.AppendUint(append(b, `,"calls":`...), f.Calls, 10)
		b = strconv.AppendUint(append(b, `,"eligible":`...), f.Eligible, 10)
		b = strconv.AppendUint(append(b, `,"injected":`...), f.Injected, 10)
		b = strconv.AppendUint(append(b, `,"refused":`...), f.Refused, 10)
		b = strconv.AppendUint(append(b, `,"missed":`...), f.Missed, 10)
		b = append(b, `,"actions":[`...)
		for k, a := range f.Actions {
			if k > 0 {
				b = append(b, ',')
			}
			b = appendJSON(append(b, `{"action":`...), a.Action)
			b = append(strconv.AppendUint(append(b, `,"n":`...), a.N, 10), '}')
		}
		b = strconv.AppendUint(append(b, `],"seed":`...), f.Seed, 10)
		b = strconv.AppendBool(append(b, `,"dry_run":`...), f.DryRun)
		b = append(b, '}')
	}
	return append(b, ']')
}
