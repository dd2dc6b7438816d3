package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Name is an attribute as the kernel's files, failcmd.sh and a command's options
// name it.
type Name struct {
	Name  string // words joined by dashes; Set also takes the kernel's underscores
	Usage string // a phrase for a list of options

	get func(*Attr) string
	set func(*Attr, string) error
}

// Names returns all attributes that Set and Get know: the kernel's in the order of its
// files, then the others.
func Names() []Name { return names[:] }

var names = [...]Name{
	{"probability", "how likely a call fails: 10%, 0.1, 1/10, or the kernel's whole percents",
		func(a *Attr) string { return formatPercent(a.Probability) },
		func(a *Attr, s string) (err error) { a.Probability, err = ParseProbability(s); return err }},
	unsignedName("interval", "let every Nth call fail", func(a *Attr) *uint64 { return &a.Interval }),
	signedName("times", "how many calls fail at most, -1 for any number", func(a *Attr) *int64 { return &a.Times }),
	signedName("space", "sizes of calls that go well before one fails", func(a *Attr) *int64 { return &a.Space }),
	intName("verbose", "what to tell of a failure: 0 nothing, 1 a line, 2 the stack too", func(a *Attr) *int { return &a.Verbose }),
	{"verbose-ratelimit-interval-ms", "tell of a number of failures at most in so many milliseconds",
		func(a *Attr) string { return strconv.FormatInt(a.VerboseRatelimit.Interval.Milliseconds(), 10) },
		func(a *Attr, s string) error {
			n, err := parseUint(s, 32)
			a.VerboseRatelimit.Interval = time.Duration(n) * time.Millisecond
			return err
		}},
	intName("verbose-ratelimit-burst", "the number of failures to tell of in that time", func(a *Attr) *int { return &a.VerboseRatelimit.Burst }),
	boolName("task-filter", "let calls fail only in tasks that are marked (Y or N)", func(a *Attr) *bool { return &a.TaskFilter }),
	{"stacktrace-depth", "how many frames to look at, 32 at most",
		func(a *Attr) string { return strconv.Itoa(a.StackDepth) },
		func(a *Attr, s string) error {
			n, err := parseUint(s, 64)
			a.StackDepth = int(min(n, MaxStackDepth))
			return err
		}},
	addressName("require-start", "let a call fail only if a frame is from this address", func(a *Attr) *uint64 { return &a.required().Start }),
	addressName("require-end", "up to this one, not included", func(a *Attr) *uint64 { return &a.required().End }),
	addressName("reject-start", "let no call fail if a frame is from this address", func(a *Attr) *uint64 { return &a.Reject.Start }),
	addressName("reject-end", "up to this one, not included", func(a *Attr) *uint64 { return &a.Reject.End }),
	unsignedName("fail-nth", "let the Nth call fail, none before it", func(a *Attr) *uint64 { return &a.FailNth }),
	{"when", "which calls may fail: 3, 3+, 3+2, 3..7 or 3..7+2, as strace's when=",
		func(a *Attr) string { return a.When.String() },
		func(a *Attr, s string) (err error) { a.When, err = ParseWhen(s); return err }},
	{"rate", "how many fail at most in a time: 5/s, 3/100ms",
		func(a *Attr) string { return a.Rate.String() },
		func(a *Attr, s string) (err error) { a.Rate, err = ParseRate(s); return err }},
	{"for", "let no call fail any more after this time: 10s",
		func(a *Attr) string { return a.For.String() },
		func(a *Attr, s string) (err error) {
			if a.For, err = time.ParseDuration(s); err != nil {
				err = fmt.Errorf("%q is not a time, such as 10s", s)
			}
			return err
		}},
	boolName("per-thread", "count the calls of each thread by themselves (Y or N)", func(a *Attr) *bool { return &a.PerThread }),
	unsignedName("seed", "what random numbers begin with", func(a *Attr) *uint64 { return &a.Seed }),
}

// required returns Require for a change. Its zero value stands for Everything, and becomes that.
func (a *Attr) required() *Range {
	if a.Require == (Range{}) {
		a.Require = Everything
	}
	return &a.Require
}

func intName(name, usage string, field func(*Attr) *int) Name {
	return Name{name, usage,
		func(a *Attr) string { return strconv.Itoa(*field(a)) },
		func(a *Attr, s string) error {
			n, err := parseUint(s, 31)
			*field(a) = int(n)
			return err
		}}
}

func signedName(name, usage string, field func(*Attr) *int64) Name {
	return Name{name, usage,
		func(a *Attr) string { return strconv.FormatInt(*field(a), 10) },
		func(a *Attr, s string) (err error) { *field(a), err = parseInt(s); return err }}
}

func unsignedName(name, usage string, field func(*Attr) *uint64) Name {
	return Name{name, usage,
		func(a *Attr) string { return strconv.FormatUint(*field(a), 10) },
		func(a *Attr, s string) (err error) { *field(a), err = parseUint(s, 64); return err }}
}

func addressName(name, usage string, field func(*Attr) *uint64) Name {
	return Name{name, usage,
		func(a *Attr) string { return fmt.Sprintf("%#016x", *field(a)) },
		func(a *Attr, s string) (err error) { *field(a), err = parseUint(s, 64); return err }}
}

func boolName(name, usage string, field func(*Attr) *bool) Name {
	return Name{name, usage,
		func(a *Attr) string {
			if *field(a) {
				return "Y"
			}
			return "N"
		},
		func(a *Attr, s string) (err error) { *field(a), err = parseBool(s); return err }}
}

// find returns the attribute of a name, or nil.
func find(name string) *Name {
	name = strings.ReplaceAll(name, "_", "-")
	for i := range names {
		if names[i].Name == name {
			return &names[i]
		}
	}
	return nil
}

// Set sets an attribute by its name: one of Names, or "attr", the kernel's boot option
// "interval,probability,space,times". After an error nothing is set. The error is about the value; the caller
// adds the name.
func (a *Attr) Set(name, value string) error {
	b := *a
	value = strings.TrimSpace(value)
	if name == "attr" {
		if err := b.setFour(strings.Split(value, ",")); err != nil {
			return err
		}
	} else if n := find(name); n == nil {
		return fmt.Errorf("there is no attribute %q of faults", name)
	} else if err := n.set(&b, value); err != nil {
		return err
	}
	if err := b.Check(); err != nil {
		return err
	}
	*a = b
	return nil
}

// Get returns the value of an attribute as the kernel's file shows it; for a name that
// is none, nothing.
func (a Attr) Get(name string) string {
	if n := find(name); n != nil {
		return n.get(&a)
	}
	return ""
}
