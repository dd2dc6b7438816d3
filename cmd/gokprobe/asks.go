package main

import (
	"context"
	"errors"
	"io"

	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/trace"
)

// ask is some SPECs, and what is wanted of their hits.
type ask struct {
	specs []string
	wants []trace.Want
	isLog bool // they are those of a log point
}

// asks are what the request probes: each with its own wants.
func (r request) asks() []ask {
	if len(r.logs) > 0 {
		return r.logs.asks(r)
	}
	if len(r.specs) == 0 {
		return nil
	}
	return []ask{{specs: r.specs, wants: r.wants()}}
}

// newSink is where the request's hits go. If there are several asks none is printed before all are placed: a later one may be refused.
func (r request) newSink(out io.Writer, color bool) *sink {
	if len(r.logs) > 1 {
		return newHeldSink(out, r.newPrinter(color))
	}
	return newSink(out, r.newPrinter(color))
}

// probes are those of the asks of a request, in one process.
type probes []*trace.Probe

// place probes all asks, or none. Hits go to q, unless it is nil.
func (all *probes) place(ctx context.Context, tr *trace.Session, asks []ask, q *trace.Queue) error {
	for _, a := range asks {
		p, err := tr.ProbeContext(ctx, a.specs, a.to(q)...)
		if err != nil {
			for _, placed := range *all {
				_ = placed.Close()
			}
			*all = nil
			return a.placedError(err)
		}
		*all = append(*all, p)
	}
	return nil
}

// placedError is the error of placing the ask's probes, in terms of what the user wrote.
func (a ask) placedError(err error) error {
	var e *values.Error
	if a.isLog && errors.As(err, &e) && e.Unknown != nil {
		return usagef("log point at %s: %s names a parameter or a variable, but %w", a.specs[0], e.Text, e.Unknown)
	}
	err = placedError(err)
	var at *caretError
	if a.isLog && errors.As(err, &at) {
		if at.flag == "-filter" {
			at.flag = "condition of the log point at " + a.specs[0]
		} else {
			at.flag = "log point at " + a.specs[0]
		}
	}
	return err
}

// to is what is wanted, with hits in q, unless that is nil.
func (a ask) to(q *trace.Queue) []trace.Want {
	if q == nil {
		return a.wants
	}
	return append(append([]trace.Want{}, a.wants...), trace.To(q))
}

// stats sums up the counts.
func (all probes) stats() (sum trace.Stats) {
	for _, p := range all {
		addStats(&sum, p.Stats())
	}
	return sum
}

func addStats(sum *trace.Stats, st trace.Stats) {
	sum.Hits += st.Hits
	sum.Missed += st.Missed
	sum.Lost += st.Lost
	sum.Places = append(sum.Places, st.Places...)
	sum.Skipped.AddAll(st.Skipped)
	sum.Patterns = append(sum.Patterns, st.Patterns...)
}

// gone tells that no place is left, why, and that none will come back.
func (all probes) gone() (why string, gone bool) {
	for _, p := range all {
		if why, gone = p.Gone(); !gone {
			return "", false
		}
	}
	return why, gone
}

// full is closed when all have reached their limits; nil if there are none.
func (all probes) full() <-chan struct{} {
	channels := make([]<-chan struct{}, len(all))
	for i, p := range all {
		channels[i] = p.Full()
	}
	return whenAll(channels)
}

// whenAll is closed when all are; nil if there are none.
func whenAll(all []<-chan struct{}) <-chan struct{} {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	done := make(chan struct{})
	go func() { // which ends with the program, if not before
		for _, c := range all {
			<-c
		}
		close(done)
	}()
	return done
}

// groupProbes are those of the asks of a request, in several processes.
type groupProbes []*trace.GroupProbe

func (all groupProbes) stats() (sum trace.Stats) {
	for _, p := range all {
		addStats(&sum, p.Stats())
	}
	return sum
}

// byProcess lists the counts in each process.
func (all groupProbes) byProcess() (list []trace.ProcessStats) {
	for i, p := range all {
		for k, ps := range p.ByProcess() {
			if i == 0 {
				list = append(list, ps)
			} else if k < len(list) && list[k].PID == ps.PID { // each probe has all processes, in their order
				addStats(&list[k].Stats, ps.Stats)
			}
		}
	}
	return list
}

// gone tells that nothing of them is left in a process, why, and that it will not come back.
func (all groupProbes) gone(tr *trace.Session) (why string, gone bool) {
	for _, p := range all {
		if why, gone = p.Gone(tr); !gone {
			return "", false
		}
	}
	return why, gone
}

func (all groupProbes) full() <-chan struct{} {
	channels := make([]<-chan struct{}, len(all))
	for i, p := range all {
		channels[i] = p.Full()
	}
	return whenAll(channels)
}
