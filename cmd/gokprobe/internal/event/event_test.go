package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var when = time.Date(2026, 1, 2, 15, 4, 5, 1, time.UTC)

type point struct{ X, Y int }

func (p point) MarshalJSON() ([]byte, error) {
	if p.X < 0 {
		return nil, errors.New("no JSON for it")
	}
	return []byte("{\n \"x\": 1,\t\"tag\": \"<\xff>\" }"), nil
}

func ptr[T any](v T) *T { return &v }

// hits holds every form of a record, and what a hostile target would try.
func hits() []*Hit {
	base := Hit{Time: when, PID: 4711, TID: 4712, Comm: "redis-server", Probe: "foo", Kind: "kprobe",
		Addr: 0x55d0c1a01139, Symbol: "foo+0x0", Module: "prog"}
	plain, args, ret, stack, place, hostile := base, base, base, base, base, base
	typed := base
	args.Args = []Arg{
		{Name: "fd", Value: int64(-3)}, {Name: "n", Value: uint64(math.MaxUint64)}, {Name: "ratio", Value: 0.15},
		{Name: "inf", Value: math.Inf(-1)}, {Name: "big", Value: 1e300}, {Name: "on", Value: true},
		{Name: "path", Value: "/tmp/a \"b\"\n"}, {Name: "p", Value: uint64(0x1000), Text: "0x1000"},
		{Name: "bad", Text: "(fault)"}, {Name: "none"}, {Name: "at", Value: point{1, 2}}, {Name: "neg", Value: point{-1, 2}, Text: "{-1, 2}"},
	}
	ret.Time, ret.Probe, ret.Kind = when.Add(1500), "a_longer_name", "kretprobe"
	ret.Ret, ret.Duration = ptr(int64(-2)), ptr(1234567*time.Nanosecond)
	typed.Kind, typed.Probe, typed.Ret, typed.Duration = "kretprobe", "foo%return", ptr(int64(5)), ptr(999*time.Nanosecond)
	several, nothing, stopped, hidden := typed, typed, typed, typed
	stopped.Duration, stopped.Stops, stopped.DurationMin = ptr(9876*time.Nanosecond), 2, 5432
	hidden.Duration, hidden.Stops = ptr(7654*time.Nanosecond), 7
	typed.Results = []Arg{{Name: "ret", Value: "GREEN", Text: "GREEN"}}
	several.Symbol, several.Results = "foo+0x6", []Arg{{Name: "~r0", Value: int64(5)}, {Name: "err\n", Text: "nil"}}
	nothing.Symbol, nothing.Results = "bar+0x6", []Arg{}
	stack.Stack = []Frame{{Addr: 0x55d0c1a01139, Symbol: "foo+0x0", Module: "prog", File: "prog.c", Line: 42}, {Addr: 0x7f0000001000, Symbol: "start+0x1", Module: "libc.so.6"}, {Addr: 0x10}}
	inLib := base
	inLib.Module, inLib.Probe = "libz.so.1", "libz.so.1:foo"
	other, bare := base, base
	other.Module, other.Probe = "libz.so.1", "libq.so:foo"
	bare.Symbol = ""
	place.Probe, place.Symbol, place.TID, place.Comm = "file.c:42", "foo+0x12", 1, "x"
	hostile.Comm, hostile.Probe, hostile.Symbol = "a\x1b[2Jb\n", "p\u202e\u009b", "s\xff\x00\ufffd\x7f"
	hostile.Args = []Arg{{Name: "n\r", Value: "\x1b]0;x\a\x7f\xc3(\u2028\U000e0001é\\"}}
	return []*Hit{&plain, &args, &ret, &stack, &inLib, &other, &bare, &place, &hostile, &typed, &several, &nothing, &stopped, &hidden}
}

var summary = Summary{PID: 4711, Lost: 2, Probes: []ProbeSummary{
	{"foo", "kprobe", 0x55d0c1a01139, "foo+0x0", 800000, 0, "boosted", "branch at +0x1c enters the region", "", nil, 0},
	{"lib.so:\x1bbar", "kretprobe", 0x7f0000001000, "bar+0x0", 3, 1, "optimized", "", "", nil, 0},
}}

func printAll(t *testing.T, p Printer) {
	t.Helper()
	for _, h := range hits() {
		if err := p.Hit(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Summary(&summary); err != nil {
		t.Fatal(err)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -update and read the diff\n%s", name, got)
	}
}

func TestOutputIsAsInTheGoldenFiles(t *testing.T) {
	for name, mk := range map[string]func(io.Writer) Printer{
		"hits.txt":   func(w io.Writer) Printer { return NewText(w, TextOptions{Location: time.UTC}) },
		"color.txt":  func(w io.Writer) Printer { return NewText(w, TextOptions{Location: time.UTC, Color: true}) },
		"hits.jsonl": func(w io.Writer) Printer { return NewJSON(w) },
	} {
		var out bytes.Buffer
		printAll(t, mk(&out))
		golden(t, name, out.Bytes())
	}
}

func TestPlainOutputHoldsNoControlBytes(t *testing.T) {
	var out bytes.Buffer
	printAll(t, NewText(&out, TextOptions{}))
	printAll(t, NewJSON(&out))
	for i, c := range out.Bytes() {
		if c < ' ' && c != '\n' || c == 0x7f {
			t.Fatalf("byte %d is %#x: %q", i, c, out.String()[max(0, i-40):i+1])
		}
	}
}

// The oracle is encoding/json: what it reads back is what went in.
func TestJSONReadsBackAsItWas(t *testing.T) {
	var out bytes.Buffer
	printAll(t, NewJSON(&out))
	dec := json.NewDecoder(&out)
	dec.UseNumber()
	for _, h := range hits() {
		var got struct {
			Type                              string
			Time                              time.Time
			PID, TID                          int
			Comm, Probe, Kind, Symbol, Module string
			Addr                              string
			Args, Results                     map[string]any
			Ret                               *int64
			DurationNS                        *int64 `json:"duration_ns"`
			Stops                             int
			MinNS                             int64 `json:"duration_min_ns"`
			Stack                             []struct {
				Addr, Symbol, Module, File string
				Line                       int
			}
		}
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		valid := func(s string) string { return string([]rune(s)) } // bad bytes to U+FFFD each
		if got.Type != "hit" || !got.Time.Equal(h.Time) || got.PID != h.PID || got.TID != h.TID || got.Comm != valid(h.Comm) ||
			got.Probe != valid(h.Probe) || got.Kind != h.Kind || got.Symbol != valid(h.Symbol) || got.Module != h.Module ||
			got.Addr != h.Addr.String() || len(got.Args) != len(h.Args) ||
			(got.Results == nil) != (h.Results == nil) || len(got.Results) != len(h.Results) || len(got.Stack) != len(h.Stack) {
			t.Errorf("got  %+v\nwant %+v", got, *h)
		}
		if got.Stops != h.Stops || got.MinNS != int64(h.DurationMin) {
			t.Errorf("%d stops, least %d ns; want %d, %d", got.Stops, got.MinNS, h.Stops, h.DurationMin)
		}
		if h.Ret != nil && (*got.Ret != *h.Ret || *got.DurationNS != int64(*h.Duration)) {
			t.Errorf("ret %d, duration %d; want %d, %d", *got.Ret, *got.DurationNS, *h.Ret, *h.Duration)
		}
		for _, a := range h.Args {
			v := got.Args[valid(a.Name)]
			if s, ok := a.Value.(string); ok && v != valid(s) {
				t.Errorf("argument %q: %q, want %q", a.Name, v, s)
			}
			if n, ok := a.Value.(uint64); ok && n == math.MaxUint64 && v != json.Number("18446744073709551615") {
				t.Errorf("argument %q: %v lost digits", a.Name, v)
			}
		}
	}
	var s struct {
		Type   string
		PID    int
		Lost   uint64
		Probes []map[string]any
	}
	if err := dec.Decode(&s); err != nil || s.Type != "summary" || s.PID != 4711 || s.Lost != 2 || len(s.Probes) != 2 ||
		len(s.Probes[0]) != 8 || s.Probes[0]["hits"] != json.Number("800000") || s.Probes[1]["reason"] != "" {
		t.Errorf("summary %+v, %v", s, err)
	}
}

// countingWriter fails after it took limit bytes and counts its calls.
type countingWriter struct {
	bytes.Buffer
	calls, limit int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	if w.limit > 0 && len(p) > w.limit {
		n, _ := w.Buffer.Write(p[:w.limit])
		return n, io.ErrClosedPipe
	}
	return w.Buffer.Write(p)
}

func TestEveryRecordIsOneWriteAndConcurrentRecordsStayWhole(t *testing.T) {
	var w countingWriter
	p := NewJSON(&w)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				for _, h := range hits() {
					if err := p.Hit(h); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	lines := bytes.Split(bytes.TrimSuffix(w.Bytes(), []byte("\n")), []byte("\n"))
	if want := 8 * 100 * len(hits()); w.calls != want || len(lines) != want {
		t.Errorf("%d writes, %d lines; want %d", w.calls, len(lines), want)
	}
	for _, l := range lines {
		if !json.Valid(l) {
			t.Fatalf("torn line %q", l)
		}
	}
}

func TestAFailedWriteIsReturnedCountedAndDoesNotTearTheNextLine(t *testing.T) {
	for _, mk := range []func(io.Writer) Printer{func(w io.Writer) Printer { return NewJSON(w) }, func(w io.Writer) Printer { return NewText(w, TextOptions{}) }} {
		w := &countingWriter{limit: 20}
		p, h := mk(w), hits()[0]
		if err := p.Hit(h); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("error %v", err)
		}
		if err := p.Summary(&summary); err == nil {
			t.Error("no error from a summary that could not be written")
		}
		w.limit = 0
		if err := p.Hit(h); err != nil || p.Lost() != 1 {
			t.Errorf("error %v, lost %d; want nil, 1", err, p.Lost())
		}
		var clean bytes.Buffer
		_ = mk(&clean).Hit(h)
		if lines := strings.SplitAfter(w.String(), "\n"); len(lines) != 4 || lines[2] != clean.String() {
			t.Errorf("after the failures: %q", lines)
		}
	}
}

// scriptedWriter takes as many bytes of each write as the next number says, the
// whole if it is negative.
type scriptedWriter struct {
	bytes.Buffer
	takes []int
}

func (w *scriptedWriter) Write(p []byte) (int, error) {
	n := w.takes[0]
	w.takes = w.takes[1:]
	if n < 0 || n >= len(p) {
		return w.Buffer.Write(p)
	}
	return w.Buffer.Write(p[:n])
}

func TestATornLineIsEndedOnceHoweverTheWritesFail(t *testing.T) {
	h := hits()[3] // a line and three frames
	var whole bytes.Buffer
	_ = NewText(&whole, TextOptions{}).Hit(h)
	line := bytes.IndexByte(whole.Bytes(), '\n') + 1
	for _, tt := range []struct {
		name  string
		takes []int
		want  string
	}{
		{"nothing is taken: nothing is torn", []int{0, -1}, whole.String()},
		{"a part, then nothing, then all", []int{5, 0, -1}, whole.String()[:5] + "\n" + whole.String()},
		{"a part, then only the line's end", []int{5, 1, -1}, whole.String()[:5] + "\n" + whole.String()},
		{"a whole line of several", []int{line, -1}, whole.String()[:line] + whole.String()},
	} {
		w := &scriptedWriter{takes: tt.takes}
		p := NewText(w, TextOptions{})
		for i := range tt.takes {
			if err := p.Hit(h); (err == nil) != (i == len(tt.takes)-1) || err != nil && !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("%s: write %d: %v", tt.name, i, err)
			}
		}
		if w.String() != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, w.String(), tt.want)
		}
	}
}

func TestASummaryThatLostNothingSaysNothingOfIt(t *testing.T) {
	var out bytes.Buffer
	if err := NewText(&out, TextOptions{}).Summary(&Summary{}); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestALongNameMovesItsOwnRowOfASummaryOnly(t *testing.T) {
	long := strings.Repeat("std::vector<", 40)
	var out bytes.Buffer
	err := NewText(&out, TextOptions{}).Summary(&Summary{Probes: []ProbeSummary{{Probe: "f", Symbol: "f+0x0"}, {Probe: long, Symbol: long}}})
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(out.String(), "\n")
	if n := len(rows[1]); n > 200 || n == len("f") {
		t.Errorf("the row of a short name has %d characters:\n%s", n, rows[1])
	}
	if len(rows[0]) != len(rows[1])+len("MECHANISM") || !strings.Contains(rows[2], long+"  ") {
		t.Errorf("not lined up:\n%s", out.String())
	}
}

func TestDurationsShowThreeDecimalsOfTheirUnit(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ns", 999: "999ns", 1000: "1.000µs", 123456: "123.456µs", 1234567: "1.235ms",
		time.Millisecond: "1.000ms", time.Second: "1.000s", 61 * time.Second: "61.000s", -1500: "-1.500µs",
	} {
		if got := string(appendDuration(nil, d)); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

// FuzzStrings: whatever a target's strings hold, JSON stays valid and reads back,
// and text stays one line of printable characters.
func FuzzStrings(f *testing.F) {
	for _, h := range hits() {
		f.Add(h.Comm, h.Symbol)
	}
	f.Add("\xed\xa0\x80\xf4\x90\x80\x80", "\u2028\u200f\ufeff\\\"")
	f.Fuzz(func(t *testing.T, a, b string) {
		h := *hits()[0]
		h.Comm, h.Probe, h.Symbol, h.Module = a, b, b+a, a
		h.Args = []Arg{{Name: a, Value: b}, {Name: "t" + a, Text: b}}
		var j, x bytes.Buffer
		_, _ = NewJSON(&j).Hit(&h), NewText(&x, TextOptions{}).Hit(&h)
		var got struct {
			Comm, Probe string
			Args        map[string]any
		}
		if err := json.Unmarshal(j.Bytes(), &got); err != nil {
			t.Fatalf("%v in %q", err, j.String())
		}
		if got.Comm != string([]rune(a)) || got.Probe != string([]rune(b)) {
			t.Errorf("read back %q, %q; want %q, %q", got.Comm, got.Probe, a, b)
		}
		for _, out := range []string{j.String(), x.String()} {
			line, ok := strings.CutSuffix(out, "\n")
			if !ok || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x202e }) {
				t.Errorf("unsafe line %q", out)
			}
		}
	})
}

func BenchmarkHit(b *testing.B) {
	h := hits()[0]
	h.Args = []Arg{{Name: "fd", Value: int64(3)}, {Name: "path", Value: "/etc/passwd"}}
	for name, p := range map[string]Printer{"text": NewText(io.Discard, TextOptions{}), "json": NewJSON(io.Discard)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Hit(h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A thread whose name holds an escape is told from one whose name holds what the escape stands for.
func TestNoTwoNamesLookTheSame(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a\x1b", `a\x1b`, `a\\x1b`, "a\n", `a\n`, "\u202e", `\u202e`, "\xff", `\xff`, `\`, `\\`} {
		for what, set := range map[string]func(*Hit){
			"thread": func(h *Hit) { h.Comm = name }, "symbol": func(h *Hit) { h.Symbol = name },
			"module of a frame": func(h *Hit) { h.Stack = []Frame{{Symbol: "f", Module: name}} },
			"symbol of a frame": func(h *Hit) { h.Stack = []Frame{{Symbol: name}} },
		} {
			h := *hits()[0]
			set(&h)
			var out bytes.Buffer
			if err := NewText(&out, TextOptions{}).Hit(&h); err != nil {
				t.Fatal(err)
			}
			line := what + ": " + out.String()
			if old, ok := seen[line]; ok {
				t.Errorf("the names %q and %q give %s", old, name, line)
			}
			seen[line] = name
		}
	}
}
