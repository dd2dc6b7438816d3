package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/script"
)

// lines writes what a scenario says on a goroutine of its own: a handler never waits for the
// output, since the target would.
type lines struct {
	queue chan line
	done  chan struct{}

	mu   sync.Mutex
	lost uint64
	err  error
}

type line struct {
	out  io.Writer
	text string
}

// linesDepth is how many lines wait for a slow output before more are lost.
const linesDepth = 64 << 10

func newLines() *lines {
	l := &lines{queue: make(chan line, linesDepth), done: make(chan struct{})}
	go l.write()
	return l
}

// put hands a line over, or counts it as lost if too many wait.
func (l *lines) put(out io.Writer, text string) {
	select {
	case l.queue <- line{out, text}:
	default:
		l.mu.Lock()
		l.lost++
		l.mu.Unlock()
	}
}

// last queues a text when no target waits for us any more: it is lost only if giveUp is closed before there is room.
func (l *lines) last(out io.Writer, text string, giveUp <-chan struct{}) {
	select {
	case l.queue <- line{out, text}:
	case <-giveUp:
		l.put(out, text)
	}
}

// write is the writer's goroutine. After an error nothing more is written to that output.
func (l *lines) write() {
	defer close(l.done)
	broken := map[io.Writer]bool{}
	for one := range l.queue {
		if broken[one.out] {
			continue
		}
		if _, err := io.WriteString(one.out, one.text); err != nil {
			broken[one.out] = true
			l.mu.Lock()
			l.err = errors.Join(l.err, err)
			l.mu.Unlock()
		}
	}
}

// close writes what is left. If giveUp is closed first, what can't be written soon is lost.
func (l *lines) close(giveUp <-chan struct{}) (lost uint64, err error) {
	close(l.queue)
	stuck := error(nil)
	select {
	case <-l.done:
	case <-giveUp:
		select {
		case <-l.done:
		case <-time.After(sinkGrace):
			stuck = errOutputStuck
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost, errors.Join(l.err, stuck)
}

// entry is what a report() prints.
func (r scriptRequest) entry(e script.Entry) string {
	if !r.json {
		words := make([]string, 0, 1+len(e.Values))
		if e.Text != "" {
			words = append(words, e.Text)
		}
		for _, v := range e.Values {
			words = append(words, v.Name+"="+v.Text)
		}
		return escape.Line(strings.Join(words, " ")) + "\n"
	}
	object := map[string]any{"type": "report", "time": e.Time.UTC().Format(time.RFC3339Nano)}
	if e.Phase != "" {
		object["phase"] = e.Phase
	}
	if e.Text != "" {
		object["text"] = e.Text
	}
	if len(e.Values) > 0 {
		object["values"] = byName(e.Values)
	}
	return jsonLine(object)
}

func byName(all []script.Named) map[string]any {
	m := make(map[string]any, len(all))
	for _, v := range all {
		m[v.Name] = v.JSON
	}
	return m
}

func jsonLine(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf(`{"type":"error","text":%q}`+"\n", err.Error())
	}
	return string(escape.JSON(b)) + "\n"
}

// summary is what is printed at the end, of one process or several.
func (r scriptRequest) summary(result script.Result, several bool) string {
	if r.json {
		return jsonSummary(result, several)
	}
	var b strings.Builder
	for _, p := range result.Probes {
		fmt.Fprintf(&b, "%s %s: %s", p.Kind, oneLine(p.Spec), escape.Count(p.Hits, "hit"))
		if p.Missed > 0 {
			fmt.Fprintf(&b, ", %d missed (%s)", p.Missed, p.Misses)
		}
		if p.Skipped > 0 {
			fmt.Fprintf(&b, ", %s not probed", escape.Count(p.Skipped, "place"))
		}
		if p.Places != 1 {
			fmt.Fprintf(&b, ", %s", escape.Count(p.Places, "place"))
		}
		if p.Mechanism != kprobes.NoMechanism {
			fmt.Fprintf(&b, ", %s", p.Mechanism)
		} else if p.Reason != "" {
			fmt.Fprintf(&b, ", %s", oneLine(p.Reason))
		}
		b.WriteString("\n")
	}
	for _, f := range result.Faults {
		fmt.Fprintf(&b, "fault %s: %s, %d injected%s\n", oneLine(f.Name), escape.Count(f.Stats.Calls, "call"), f.Stats.Injected, faultDetails(f.Stats))
	}
	for _, c := range result.Counters {
		fmt.Fprintf(&b, "counter %s: %s\n", oneLine(c.Name), c.Text)
	}
	if several {
		for _, p := range result.Processes {
			b.WriteString(processText(p))
		}
	}
	bad := 0
	for _, c := range result.Cases {
		if c.Failed > 0 {
			bad++
		}
	}
	if result.Failed {
		fmt.Fprintf(&b, "failed: %d of %s, seed %d\n", bad, escape.Count(len(result.Cases), "check"), result.Seed)
	} else {
		fmt.Fprintf(&b, "passed: %s, seed %d\n", escape.Count(len(result.Cases), "check"), result.Seed)
	}
	return b.String()
}

// faultDetails is what is out of the ordinary, and what was done.
func faultDetails(s inject.Stats) string {
	var b strings.Builder
	if s.Refused > 0 {
		fmt.Fprintf(&b, ", %d refused", s.Refused)
	}
	if s.Missed > 0 {
		fmt.Fprintf(&b, ", %d missed (%s)", s.Missed, s.Misses)
	}
	for _, a := range s.Actions {
		fmt.Fprintf(&b, ", %s: %d", oneLine(a.Action), a.N)
	}
	for _, p := range s.Places {
		if p.Waiting && p.Addr == 0 && p.Reason != "" {
			fmt.Fprintf(&b, ", %s: %s", oneLine(p.Name), oneLine(p.Reason))
		}
	}
	return b.String()
}

// processText is what became of the scenario in one of several processes.
func processText(p script.Process) string {
	var hits, missed, injected uint64
	for _, k := range p.Probes {
		hits, missed = hits+k.Hits, missed+k.Missed
	}
	for _, f := range p.Faults {
		injected += f.Stats.Injected
	}
	var b strings.Builder
	fmt.Fprintf(&b, "process %d (%s): %s", p.PID, escape.Line(p.Comm), escape.Count(hits, "hit"))
	if missed > 0 {
		fmt.Fprintf(&b, ", %d missed", missed)
	}
	if len(p.Faults) > 0 {
		fmt.Fprintf(&b, ", %d injected", injected)
	}
	if p.Exited {
		fmt.Fprintf(&b, ", exit status %d", p.Status)
	}
	return b.String() + "\n"
}

// jsonSummary is the summary as an object, the last line of the output.
func jsonSummary(result script.Result, several bool) string {
	cases := []map[string]any{}
	for _, c := range result.Cases {
		one := map[string]any{"name": c.Name, "checks": c.Checks, "failed": c.Failed}
		if c.Place != "" {
			one["place"] = c.Place
		}
		if len(c.Problems) > 0 {
			one["problem"] = c.Problems[0].Error()
		}
		cases = append(cases, one)
	}
	sum := map[string]any{"type": "summary", "failed": result.Failed, "seed": result.Seed, "duration_ns": result.Took.Nanoseconds(),
		"cases": cases, "counters": byName(result.Counters), "probes": probeObjects(result.Probes), "faults": faultObjects(result.Faults)}
	if !several {
		sum["pid"] = result.Processes[0].PID
		return jsonLine(sum)
	}
	processes := []map[string]any{}
	for _, p := range result.Processes {
		one := map[string]any{"pid": p.PID, "comm": p.Comm, "probes": probeObjects(p.Probes), "faults": faultObjects(p.Faults)}
		if p.Exited {
			one["exit_status"] = p.Status
		}
		processes = append(processes, one)
	}
	sum["processes"] = processes
	return jsonLine(sum)
}

func probeObjects(all []script.Probe) []map[string]any {
	probes := []map[string]any{}
	for _, p := range all {
		probes = append(probes, map[string]any{"probe": p.Spec, "kind": p.Kind, "places": p.Places,
			"hits": p.Hits, "nmissed": p.Missed, "misses": reasons(misses(p.Misses)), "skipped": p.Skipped, "mechanism": p.Mechanism.String(), "reason": p.Reason})
	}
	return probes
}

// reasons is losses as objects.
func reasons(all []event.Loss) []map[string]any {
	out := []map[string]any{}
	for _, l := range all {
		out = append(out, map[string]any{"reason": l.Reason, "n": l.N})
	}
	return out
}

func faultObjects(all []script.Fault) []map[string]any {
	faults := []map[string]any{}
	for _, f := range all {
		done := map[string]uint64{}
		for _, a := range f.Stats.Actions {
			done[a.Action] = a.N
		}
		faults = append(faults, map[string]any{"fault": f.Name, "calls": f.Stats.Calls, "eligible": f.Stats.Eligible,
			"injected": f.Stats.Injected, "refused": f.Stats.Refused, "missed": f.Stats.Missed, "misses": reasons(misses(f.Stats.Misses)),
			"actions": done, "seed": f.Seed})
	}
	return faults
}
