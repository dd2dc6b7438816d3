package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is what Run has measured.
type Report struct {
	Machine Machine
	Rows    []Result
}

// Figures are one thing's measurements in nanoseconds per call.
type Figures struct {
	Median float64   `json:"median_ns"`
	Min    float64   `json:"min_ns"`
	Max    float64   `json:"max_ns"`
	Rounds []float64 `json:"rounds_ns"`
}

// Result is a row of the table.
type Result struct {
	Row  string   `json:"row"`
	What string   `json:"what"`
	Each *Figures `json:"each,omitempty"` // nil if Note says why it could not be measured
	Note string   `json:"note,omitempty"`

	// The floor, measured in the same rounds.
	Floor     string   `json:"floor"`
	FloorEach *Figures `json:"floor_each,omitempty"`
	FloorNote string   `json:"floor_note,omitempty"`

	// Ratio is the median of the rounds' ratios, 0 if there is none, and OK whether it is
	// as Goal wants it. Goal is 0 if there is none.
	Ratio   float64 `json:"ratio,omitempty"`
	Goal    float64 `json:"goal,omitempty"`
	AtLeast bool    `json:"goal_is_minimum,omitempty"`
	OK      *bool   `json:"ok,omitempty"`

	// The kernel's document: its figure in microseconds, and how that compares with its
	// figure for the row Over; OverHere is the same ratio here, 0 if Over was not measured.
	KernelUsec float64 `json:"kernel_doc_us,omitempty"`
	Over       string  `json:"over,omitempty"`
	OverKernel float64 `json:"over_kernel_doc,omitempty"`
	OverHere   float64 `json:"over_here,omitempty"`
}

func figures(s series) *Figures {
	if len(s) == 0 {
		return nil
	}
	o := s.sorted()
	return &Figures{s.median(), o[0], o[len(o)-1], s}
}

func newReport(m Machine, states []*state) *Report {
	r := &Report{Machine: m}
	measured := map[string]series{}
	for _, s := range states {
		measured[s.name] = s.each
	}
	for _, s := range states {
		res := Result{
			Row: s.name, What: s.what, Each: figures(s.each), Note: s.note,
			Floor: s.floorName, FloorEach: figures(s.floors), FloorNote: s.floorNote,
			Goal: s.goal, AtLeast: s.atLeast, KernelUsec: s.doc.usec, Over: s.doc.over,
		}
		if len(s.each) > 0 && len(s.floors) > 0 {
			res.Ratio = s.each.ratio(s.floors)
			if s.goal > 0 {
				ok := (res.Ratio >= s.goal) == s.atLeast || res.Ratio == s.goal
				res.OK = &ok
			}
		}
		if s.doc.over != "" {
			res.OverKernel = s.doc.usec / s.doc.of
			if o := measured[s.doc.over]; len(o) > 0 && len(s.each) > 0 {
				res.OverHere = s.each.ratio(o)
			}
		}
		r.Rows = append(r.Rows, res)
	}
	return r
}

// Text prints the machine and the table.
func (r *Report) Text(w io.Writer) error {
	fmt.Fprintln(w, r.Machine)
	fmt.Fprint(w, "ns of a call, the loop around it included, or of what else a row names: median of the rounds [smallest–largest]\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "row\twhat\tns\t\tagainst\tns\t\tratio\tgoal\t\tkernel's document")
	for _, res := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", res.Row, res.What, res.Each.cells(), res.Floor, res.FloorEach.cells(), res.verdict(), res.document())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.notes(w)
}

// notes says why figures are missing, each reason once.
func (r *Report) notes(w io.Writer) error {
	var reasons []string
	rows, floors := map[string][]string{}, map[string][]string{}
	add := func(to map[string][]string, reason, row string) {
		if reason == "" {
			return
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
		to[reason] = append(to[reason], row)
	}
	for _, res := range r.Rows {
		add(rows, res.Note, res.Row)
		add(floors, res.FloorNote, res.Row)
	}
	fmt.Fprintln(w)
	for _, reason := range reasons {
		who := rows[reason]
		if f := floors[reason]; f != nil {
			who = append(who, "the floors of "+strings.Join(f, ", "))
		}
		fmt.Fprintf(w, "%s: %s\n", strings.Join(who, ", "), reason)
	}
	_, err := fmt.Fprintln(w, "The kernel's document is of a Xeon E5410, and for j, kr and jr of an Opteron 246.")
	return err
}

func (f *Figures) cells() string {
	if f == nil {
		return "–\t"
	}
	return fmt.Sprintf("%s\t[%s–%s]", figure(f.Median), figure(f.Min), figure(f.Max))
}

func (res *Result) verdict() string {
	ratio, goal, ok := "", "", ""
	if res.Ratio > 0 {
		ratio = times(res.Ratio)
	}
	if res.Goal > 0 {
		goal = fmt.Sprintf("≤ %g×", res.Goal)
		if res.AtLeast {
			goal = fmt.Sprintf("≥ %g×", res.Goal)
		}
	}
	if res.OK != nil {
		switch {
		case *res.OK:
			ok = "ok"
		case res.AtLeast:
			ok = "UNDER"
		default:
			ok = "OVER"
		}
	}
	return ratio + "\t" + goal + "\t" + ok
}

// document is the kernel's figure and, where it compares two of its own, this machine's ratio.
func (res *Result) document() string {
	switch {
	case res.KernelUsec == 0:
		return ""
	case res.Over == "":
		return fmt.Sprintf("%.2f µs", res.KernelUsec)
	case res.OverHere == 0:
		return fmt.Sprintf("%.2f µs, %s %s", res.KernelUsec, times(res.OverKernel), res.Over)
	}
	return fmt.Sprintf("%.2f µs, %s %s; here %s", res.KernelUsec, times(res.OverKernel), res.Over, times(res.OverHere))
}

// JSON prints one object a line: the machine, then the rows. The member "type" says which.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	if err := e.Encode(struct {
		Type string `json:"type"`
		Machine
	}{"machine", r.Machine}); err != nil {
		return err
	}
	for _, res := range r.Rows {
		if err := e.Encode(struct {
			Type string `json:"type"`
			Result
		}{"row", res}); err != nil {
			return err
		}
	}
	return nil
}
