package fault_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
)

func TestParseProbability(t *testing.T) {
	for s, want := range map[string]float64{
		"10%": 0.1, "0.1": 0.1, "1/10": 0.1, "1e-1": 0.1, "10": 0.1, " 10 ": 0.1,
		"1": 0.01, "1%": 0.01, "1.0": 1, "100": 1, "100%": 1, "1/1": 1, "1e0": 1,
		"0": 0, "0%": 0, "0/5": 0, "1/1000": 0.001, "0.1%": 0.001, "1e-3": 0.001, ".5": 0.5, "33.25%": 0.3325,
	} {
		if p, err := fault.ParseProbability(s); err != nil || p != want {
			t.Errorf("%q is %v, %v; want %v", s, p, err, want)
		}
	}
	for s, want := range map[string]string{
		"": `"" is not a probability, such as 10%, 0.1 or 1/1000`, "x": "is not a probability", "1/0": "is not a probability", "-1": "is not a probability",
		"nan": "is not a probability", "NaN%": "is not a probability", "inf": "is not a probability", "0x1p-2": "is not a probability", "1/": "is not a probability",
		"1e400": "is not a probability", "%": "is not a probability", "1 0": "is not a probability",
		"101": "the probability 101 is not between 0% and 100%", "100.1%": "is not between", "1.5": "is not between", "2/1": "is not between", "-0.5": "is not between",
	} {
		if p, err := fault.ParseProbability(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v; want an error with %q", s, p, err, want)
		}
	}
}

func TestProbabilitiesArePrintedAsTheyAreRead(t *testing.T) {
	for p, want := range map[float64]string{0: "0%", 1: "100%", 0.1: "10%", 0.001: "0.1%", 1e-6: "0.0001%", 0.07: "7%", 0.29: "29%", 0.57: "57%", 1e-30: "1e-30"} {
		if s := fault.FormatProbability(p); s != want {
			t.Errorf("%v is printed %q, want %q", p, s, want)
		}
	}
	for n := range 101 { // the kernel's file
		a := fault.Default()
		a.Probability = float64(n) / 100
		if got, err := fault.ParseProbability(a.Get("probability")); err != nil || got != a.Probability || strings.Contains(a.Get("probability"), "%") {
			t.Errorf("%d%% is shown as %s, read as %v (%v)", n, a.Get("probability"), got, err)
		}
	}
	for range 10000 {
		p := math.Ldexp(rand.Float64(), -rand.IntN(80))
		if q, err := fault.ParseProbability(fault.FormatProbability(p)); err != nil || q != p {
			t.Errorf("%v is printed %q, read as %v (%v)", p, fault.FormatProbability(p), q, err)
		}
	}
}

func TestParseWhen(t *testing.T) {
	for s, want := range map[string]fault.When{
		"": {}, "3": {First: 3}, "3+": {First: 3, Step: 1}, "3+1": {First: 3, Step: 1}, "3+2": {First: 3, Step: 2},
		"3..7": {First: 3, Last: 7, Step: 1}, "3..7+": {First: 3, Last: 7, Step: 1}, "3..7+2": {First: 3, Last: 7, Step: 2}, "1..1": {First: 1, Last: 1, Step: 1},
		"9223372036854775807": {First: math.MaxInt64},
	} {
		if w, err := fault.ParseWhen(s); err != nil || w != want {
			t.Errorf("%q is %+v, %v; want %+v", s, w, err, want)
		}
	}
	for s, want := range map[string]string{
		"0": "the first call is number 1, there is no 0", "0+1": "there is no 0", "1+0": "there is no 0", "3..0": "there is no 0",
		"7..3": "the last call, 3, is before the first, 7", "x": `"x" is not a number of calls; it is first[..last][+[step]]`, "3..": `"" is not a number`,
		"+3": `"" is not a number`, "..3": `"" is not a number`, "3-5": "is not a number", "3.5": "is not a number", "3...5": "is not a number",
		"3+2+1": "is not a number", "0x3": "is not a number", "-1": "is not a number", "18446744073709551615": "is not a number",
	} {
		if w, err := fault.ParseWhen(s); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "when ") {
			t.Errorf("%q is %+v, %v; want an error with %q", s, w, err, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]fault.Rate{
		"": {}, "5/s": {N: 5, Per: time.Second}, "10/m": {N: 10, Per: time.Minute}, "3/100ms": {N: 3, Per: 100 * time.Millisecond}, "1/2h": {N: 1, Per: 2 * time.Hour},
		"2/1m30s": {N: 2, Per: 90 * time.Second}, "1/us": {N: 1, Per: time.Microsecond}, "4/250us": {N: 4, Per: 250 * time.Microsecond},
	} {
		r, err := fault.ParseRate(s)
		if err != nil || r != want {
			t.Errorf("%q is %+v, %v; want %+v", s, r, err, want)
		}
		if again, err := fault.ParseRate(r.String()); err != nil || again != r {
			t.Errorf("%q is printed %q, read as %+v (%v)", s, r, again, err)
		}
	}
	for _, s := range []string{"5", "5/", "/s", "0/s", "5/0s", "-5/s", "5/-1s", "x/s", "5/x", "5/s/s", "2000000/s", "1.5/s"} {
		if r, err := fault.ParseRate(s); err == nil || !strings.HasPrefix(err.Error(), "rate ") {
			t.Errorf("%q is %+v, %v; want an error", s, r, err)
		}
	}
}

// What is written to the kernel's files, and what they then show.
func TestSetAndGetAreTheKernelsFiles(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"probability", "10\n", "10"}, {"probability", "100", "100"}, {"probability", "0.25%", "0.25%"},
		{"interval", "100", "100"}, {"interval", "0x10", "16"}, {"interval", "010", "8"}, {"interval", "+5", "5"}, {"interval", "0", "0"},
		{"times", "-1\n", "-1"}, {"times", "7", "7"}, {"space", "4096", "4096"}, {"space", "-3", "-3"},
		{"verbose", "1", "1"}, {"verbose_ratelimit_interval_ms", "250", "250"}, {"verbose_ratelimit_burst", "4", "4"},
		{"verbose-ratelimit-interval-ms", "250", "250"}, {"verbose-ratelimit-burst", "4", "4"},
		{"task-filter", "Y\n", "Y"}, {"task-filter", "1", "Y"}, {"task-filter", "on", "Y"}, {"task-filter", "n", "N"}, {"task-filter", "off", "N"}, {"task-filter", "0", "N"},
		{"stacktrace-depth", "10", "10"}, {"stacktrace-depth", "33", "32"}, {"stacktrace-depth", "18446744073709551615", "32"},
		{"require-start", "0xffffffffc0200000", "0xffffffffc0200000"}, {"require-end", "0x10", "0x0000000000000010"}, {"reject-start", "16", "0x0000000000000010"}, {"reject-end", "0x1f", "0x000000000000001f"},
		{"fail-nth", "3", "3"}, {"when", "3+2", "3+2"}, {"rate", "5/s", "5/s"}, {"for", "90s", "1m30s"}, {"per-thread", "Y", "Y"}, {"seed", "0xff", "255"},
	} {
		a := fault.Default()
		if err := a.Set(tt.name, tt.value); err != nil || a.Get(tt.name) != tt.want {
			t.Errorf("%s set to %q is %q (%v), want %q", tt.name, tt.value, a.Get(tt.name), err, tt.want)
		}
	}
	initial := map[string]string{
		"probability": "0", "interval": "1", "times": "1", "space": "0", "verbose": "2", "verbose_ratelimit_interval_ms": "0", "verbose_ratelimit_burst": "10", "task-filter": "N",
		"stacktrace-depth": "32", "require-start": "0x0000000000000000", "require-end": "0xffffffffffffffff", "reject-start": "0x0000000000000000", "reject-end": "0x0000000000000000",
	}
	for name, want := range initial { // H2
		if got := fault.Default().Get(name); got != want {
			t.Errorf("%s is %s at first, want %s", name, got, want)
		}
	}
	if len(fault.Names()) != len(initial)+6 {
		t.Errorf("%d attributes", len(fault.Names()))
	}
	for _, n := range fault.Names() {
		if n.Usage == "" || fault.Default().Get(n.Name) == "" && n.Name != "when" && n.Name != "rate" {
			t.Errorf("%+v", n)
		}
	}
	if got := fault.Default().Get("nothing"); got != "" {
		t.Errorf("an unknown name is %q", got)
	}
	literal := fault.Attr{Probability: 1, Times: -1, StackDepth: 32} // no Require
	if err := literal.Set("require-start", "0x10"); err != nil || literal.Require != (fault.Range{Start: 0x10, End: math.MaxUint64}) {
		t.Errorf("the start of a requirement that was none: %+v, %v", literal.Require, err)
	}
}

func TestSetRefusesNonsense(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"probability", "200", "the probability 200 is not between 0% and 100%"}, {"probability", "", "is not a probability"},
		{"interval", "-1", `"-1" is not a number from 0`}, {"interval", "1_0", "is not a number"}, {"interval", "18446744073709551616", "18446744073709551616 is too large"},
		{"times", "-2", "times -2: no call can fail that often; -1 stands for any number of calls"}, {"times", "x", `"x" is not a number`}, {"times", "9223372036854775808", "9223372036854775808 is out of range"},
		{"verbose", "-1", "is not a number from 0"}, {"verbose_ratelimit_interval_ms", "4294967296", "is too large"},
		{"task-filter", "maybe", `"maybe" is neither Y nor N`}, {"task-filter", "", "neither"}, {"task-filter", "o", "neither"},
		{"stacktrace-depth", "-1", "is not a number from 0"}, {"require-start", "malloc", "is not a number"},
		{"for", "10", `"10" is not a time, such as 10s`}, {"for", "-1s", "the time for which calls fail, -1s, is negative"},
		{"when", "0", "there is no 0"}, {"rate", "x", "is not a number of calls in a time"}, {"seed", "-1", "is not a number from 0"},
		{"attr", "1,100,0", `"1,100,0" is not interval,probability,space,times: four numbers`}, {"attr", "1,100,0,x", `times: "x" is not a number`},
		{"chance", "1", `there is no attribute "chance" of faults`},
	} {
		a := fault.Default()
		if err := a.Set(tt.name, tt.value); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s set to %q: %v, want %q", tt.name, tt.value, err, tt.want)
		}
		if a != fault.Default() {
			t.Errorf("%s set to %q is an error, but changed %v", tt.name, tt.value, a)
		}
	}
}

func TestCheckRefusesWhatCannotBeMeant(t *testing.T) {
	for want, change := range map[string]func(*fault.Attr){
		"the probability -0.5 is not between 0 and 1":                                   func(a *fault.Attr) { a.Probability = -0.5 },
		"the probability NaN is not between 0 and 1":                                    func(a *fault.Attr) { a.Probability = math.NaN() },
		"verbose -1 is negative; 0 tells nothing, 1 a line, 2 the stack too":            func(a *fault.Attr) { a.Verbose = -1 },
		"the rate limit of messages, -1 in 0s, is negative":                             func(a *fault.Attr) { a.VerboseRatelimit.Burst = -1 },
		"the stack trace depth 33 is not between 0 and 32":                              func(a *fault.Attr) { a.StackDepth = 33 },
		"the first call is number 1, there is no 0":                                     func(a *fault.Attr) { a.When.Step = 2 },
		"the last call, 2, is before the first, 3":                                      func(a *fault.Attr) { a.When = fault.When{First: 3, Last: 2} },
		"rate 5/0s: number and time must be positive":                                   func(a *fault.Attr) { a.Rate.N = 5 },
		"rate 1048577/s: more than 1048576 calls can't be limited; take a shorter time": func(a *fault.Attr) { a.Rate = fault.Rate{N: 1<<20 + 1, Per: time.Second} },
	} {
		a := fault.Default()
		change(&a)
		if _, err := fault.New(a); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestParseAttr(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"1,100,0,-1", "1,100,0,-1"}, {"2,10%,3,4", "2,10,3,4"}, {"0x10,0.5,0,1", "16,50,0,1"},
		{"1,10,0,5,when=3+2,seed=7", "1,10,0,5,when=3+2,seed=7"}, {"when=3", "1,0,0,1,when=3"}, {"probability=1e-3,times=-1", "1,0.1%,0,-1"},
		{"task_filter=y,require-end=16", "1,0,0,1,task-filter=Y,require-end=0x0000000000000010"},
	} {
		a, err := fault.ParseAttr(tt.text)
		if err != nil || a.String() != tt.want {
			t.Errorf("%q is %v, %v; want %s", tt.text, a, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		"": "is not interval,probability,space,times: four numbers", "1,2,3": "four numbers", "1,2,3,4,5": `"5" is not NAME=VALUE`, "1,2,3,x": `times: "x" is not a number`,
		"1,2,3,4,": `"" is not NAME=VALUE`, "when=3,7": `"7" is not NAME=VALUE`, "color=red": `color: there is no attribute "color" of faults`, "1,2,3,4,attr=1": "is not NAME=VALUE",
	} {
		if a, err := fault.ParseAttr(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v; want an error with %q", text, a, err, want)
		}
	}
	if got := fault.Always().String(); got != "1,100,0,-1" {
		t.Errorf("Always is %s", got)
	}
}

func FuzzParseWhen(f *testing.F) {
	for _, s := range []string{"", "3", "3+", "3+2", "3..7", "3..7+2", "0", "9223372036854775807..9223372036854775807+9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := fault.ParseWhen(s)
		if err != nil {
			return
		}
		if again, err := fault.ParseWhen(w.String()); err != nil || again != w {
			t.Errorf("%q is %+v, printed %q, read as %+v (%v)", s, w, w, again, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"", "5/s", "3/100ms", "1/1h30m", "1/1.5s", "1/0.000000001s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := fault.ParseRate(s)
		if err != nil {
			return
		}
		if again, err := fault.ParseRate(r.String()); err != nil || again != r {
			t.Errorf("%q is %+v, printed %q, read as %+v (%v)", s, r, r, again, err)
		}
	})
}

func FuzzParseProbability(f *testing.F) {
	for _, s := range []string{"10%", "0.1", "1/1000", "1e-3", "100", "0.00000000000000000001%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := fault.ParseProbability(s)
		if err != nil {
			return
		}
		if q, err := fault.ParseProbability(fault.FormatProbability(p)); err != nil || q != p || !(p >= 0 && p <= 1) {
			t.Errorf("%q is %v, printed %q, read as %v (%v)", s, p, fault.FormatProbability(p), q, err)
		}
	})
}

func FuzzParseAttr(f *testing.F) {
	for _, s := range []string{"1,100,0,-1", "2,10%,3,4,when=3+2,seed=7,rate=5/s,for=10s,per-thread=Y", "require-start=0x1000,reject-end=7,verbose_ratelimit_burst=3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := fault.ParseAttr(s)
		if err != nil {
			return
		}
		again, err := fault.ParseAttr(a.String())
		if a.Require == (fault.Range{}) {
			a.Require = fault.Everything
		}
		if err != nil || again != a {
			t.Errorf("%q is %+v, printed %q, read as %+v (%v)", s, a, a.String(), again, err)
		}
		if _, err := fault.New(a); err != nil {
			t.Errorf("%q is read, but refused: %v", s, err)
		}
	})
}
