package trigger

import (
	"fmt"
	"math/bits"
	"strings"
)

const (
	histPrefix = "hist:"
	maxKeys    = 3
	maxVals    = 2 // beside hitcount
	maxVars    = 16
	maxSorts   = 2
	maxActions = 8
	minBits    = 7
	maxBits    = 17

	// DefaultSize is how many entries a histogram has at most, if its command does not say it.
	DefaultSize = 2048
)

// Spec is what a hist command asks for. It does not change.
type Spec struct {
	Name       string // of a histogram that several events share; "" is none
	Size       int    // entries at most, a power of two
	NoHitcount bool   // hitcount is not shown
	Pause      bool   // begin paused, or pause the one that is there
	Continue   bool
	Clear      bool

	keys, vals, vars []*term
	sorts            []sortKey
	clock            string
	timed, usecs     bool // has times, in microseconds
	refs             []reference
	actions          []*action
}

// sortKey is one of sort=: nil is hitcount.
type sortKey struct {
	by         *term
	descending bool
}

// reference is a variable of another histogram that a term refers to.
type reference struct {
	variable
	once bool // reading it in an expression uses it up
}

// variable is one that a histogram defines.
type variable struct {
	table *Hist
	index int // of table.spec.vars
}

// String is the command behind "hist:", as the trigger file lists it, without filter and state.
func (s *Spec) String() string {
	var b strings.Builder
	if s.Name != "" {
		b.WriteString("name=" + s.Name + ":")
	}
	b.WriteString("keys=" + list(s.keys) + ":vals=")
	vals := list(s.vals)
	if !s.NoHitcount {
		vals = strings.TrimSuffix("hitcount,"+vals, ",")
	}
	b.WriteString(vals)
	if len(s.vars) > 0 {
		b.WriteString(":" + list(s.vars))
	}
	b.WriteString(":sort=" + s.sortText())
	fmt.Fprintf(&b, ":size=%d", s.Size)
	if s.timed {
		b.WriteString(":clock=" + s.clock)
	}
	if s.NoHitcount {
		b.WriteString(":nohitcount")
	}
	for _, a := range s.actions {
		b.WriteString(":" + a.String())
	}
	return b.String()
}

func list(terms []*term) string {
	text := make([]string, len(terms))
	for i, t := range terms {
		text[i] = t.String()
	}
	return strings.Join(text, ",")
}

func (s *Spec) sortText() string {
	text := make([]string, len(s.sorts))
	for i, k := range s.sorts {
		text[i] = "hitcount"
		if k.by != nil {
			text[i] = k.by.String()
		}
		if k.descending {
			text[i] += ".descending"
		}
	}
	return strings.Join(text, ",")
}

// same is whether both aggregate the same in the same order. Names and sizes play no part.
func (s *Spec) same(o *Spec) bool {
	a, b := *s, *o
	a.Name, a.Size, b.Name, b.Size = "", 0, "", 0
	return a.String() == b.String()
}

// NeedsStack is whether hits must have their Stack.
func (s *Spec) NeedsStack() bool {
	for _, terms := range [][]*term{s.keys, s.vars} {
		for _, t := range terms {
			if t.op == opStack {
				return true
			}
		}
	}
	return false
}

// parseSize reads size=: what is no power of two is rounded up to one.
func parseSize(s string) (int, bool) {
	n, ok := parseNumber(s)
	if !ok || n == 0 {
		return 0, false
	}
	b := bits.Len64(n - 1)
	return 1 << b, minBits <= b && b <= maxBits
}
