package trigger

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

var (
	s32  = fetch.Type{Name: "s32", Kind: fetch.Signed, Size: 4}
	u64  = fetch.Type{Name: "u64", Kind: fetch.Unsigned, Size: 8}
	text = fetch.Type{Name: "string", Kind: fetch.String}
)

// alloc is like the kernel's kmem:kmalloc, which the selftests use.
var alloc = Event{System: "kmem", Name: "kmalloc", Fields: []fetch.Field{
	{Name: "common_pid", Type: s32},
	{Name: "call_site", Type: u64},
	{Name: "bytes_req", Type: u64},
	{Name: "bytes_alloc", Type: u64},
	{Name: "delta", Type: s32},
	{Name: "name", Type: text},
	{Name: "words", Type: fetch.Type{Name: "u64", Kind: fetch.Unsigned, Size: 8, Count: 4}},
}}

func TestTriggersAreListed(t *testing.T) {
	for text, want := range map[string]string{
		"traceon":                                     "traceon:unlimited",
		"traceoff":                                    "traceoff:unlimited",
		" traceoff:3 ":                                "traceoff:count=3",
		"snapshot:0x10":                               "snapshot:count=16",
		"stacktrace":                                  "stacktrace:unlimited",
		"stacktrace 5":                                "stacktrace:count=5",
		"traceoff if delta==1":                        "traceoff:unlimited if delta==1",
		"stacktrace:3 if bytes_req >= 65536":          "stacktrace:count=3 if bytes_req >= 65536",
		"enable_event:sched:sched_switch":             "enable_event:sched:sched_switch:unlimited",
		"disable_event:sched:sched_switch:1":          "disable_event:sched:sched_switch:count=1",
		"enable_hist:net:skb if bytes_req > 1":        "enable_hist:net:skb:unlimited if bytes_req > 1",
		"disable_hist:net:skb:2 if bytes_req > 1":     "disable_hist:net:skb:count=2 if bytes_req > 1",
		"hist:key=bytes_req":                          "hist:keys=bytes_req:vals=hitcount:sort=hitcount:size=2048 [active]",
		"hist:keys=bytes_req:pause":                   "hist:keys=bytes_req:vals=hitcount:sort=hitcount:size=2048 [paused]",
		"hist:keys=bytes_req if delta > 2":            "hist:keys=bytes_req:vals=hitcount:sort=hitcount:size=2048 if delta > 2 [active]",
		"hist:keys=call_site.sym:val=bytes_req":       "hist:keys=call_site.sym:vals=hitcount,bytes_req:sort=hitcount:size=2048 [active]",
		"hist:keys=call_site.sym-offset:size=100":     "hist:keys=call_site.sym-offset:vals=hitcount:sort=hitcount:size=128 [active]",
		"hist:keys=bytes_req.bucket=32":               "hist:keys=bytes_req.buckets=32:vals=hitcount:sort=hitcount:size=2048 [active]",
		"hist:keys=common_pid.execname,name,cpu":      "hist:keys=common_pid.execname,name,common_cpu:vals=hitcount:sort=hitcount:size=2048 [active]",
		"hist:keys=stacktrace:values=hitcount":        "hist:keys=common_stacktrace:vals=hitcount:sort=hitcount:size=2048 [active]",
		"hist:name=foo:keys=delta":                    "hist:name=foo:keys=delta:vals=hitcount:sort=hitcount:size=2048 [active]",
		"hist:keys=delta:vals=bytes_req.percent:NOHC": "hist:keys=delta:vals=bytes_req.percent:sort=hitcount:size=2048:nohitcount [active]",
		"hist:keys=delta,bytes_req:vals=bytes_alloc.graph,hitcount.percent:sort=bytes_alloc.descending,delta": "hist:keys=delta,bytes_req:vals=hitcount,bytes_alloc.graph,hitcount.percent:sort=bytes_alloc.graph.descending,delta:size=2048 [active]",
		"hist:keys=common_pid:ts0=common_timestamp.usecs":                                                     "hist:keys=common_pid:vals=hitcount:ts0=common_timestamp.usecs:sort=hitcount:size=2048:clock=global [active]",
		"hist:keys=common_pid:a=delta:b=$a,c=bytes_alloc-bytes_req:d=$c":                                      "hist:keys=common_pid:vals=hitcount:a=delta,b=delta,c=bytes_alloc-bytes_req,d=$c:sort=hitcount:size=2048 [active]",
		"hist:keys=bytes_alloc-bytes_req:sort=bytes_alloc-bytes_req":                                          "hist:keys=bytes_alloc-bytes_req:vals=hitcount:sort=bytes_alloc-bytes_req:size=2048 [active]",
		"hist:keys=-(delta)": "hist:keys=-(delta):vals=hitcount:sort=hitcount:size=2048 [active]",
		"hist:keys=delta:x=bytes_req:onmax($x).save(common_pid,name)":          "hist:keys=delta:vals=hitcount:x=bytes_req:sort=hitcount:size=2048:onmax($x).save(common_pid,name) [active]",
		"hist:keys=delta:x=bytes_req:onchange($x).snapshot() if bytes_req > 0": "hist:keys=delta:vals=hitcount:x=bytes_req:sort=hitcount:size=2048:onchange($x).snapshot() if bytes_req > 0 [active]",
	} {
		got, err := Parse(text, alloc)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.String() != want {
			t.Errorf("%s\nis listed as %s\nwant         %s", text, got, want)
		}
	}
}

func TestExpressionsOfNumbersAreComputed(t *testing.T) {
	for expression, want := range map[string]string{
		"123":      "123",
		"16-8-4-2": "2",
		"64/8/4/2": "1",
		"16-8+4+2": "14",
		"4*3/2*2":  "12",
		"4+3*2-2":  "8",
		"4+6/2-2":  "5",
		"0x10+010": "24",
	} {
		tr, err := Parse("hist:keys=common_pid:x="+expression, alloc)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if !strings.Contains(tr.String(), ":x="+want+":") {
			t.Errorf("%s: listed as %s", expression, tr)
		}
	}
}

// TestErrorsTellTheirPlace has the lines of the kernel's selftests, and others: the caret stands where ^
// does. One without ^ has it at the beginning.
func TestErrorsTellTheirPlace(t *testing.T) {
	for line, id := range map[string]string{
		"hist:keys=common_pid:vals=bytes_req:sort=common_pid,^junk":                        "INVALID_SORT_FIELD",
		"hist:keys=common_pid:vals=bytes_req:^sort=":                                       "EMPTY_ASSIGNMENT",
		"hist:keys=common_pid:vals=bytes_req:^sort=common_pid,":                            "EMPTY_SORT_FIELD",
		"hist:keys=common_pid:vals=bytes_req:sort=common_pid.^junk":                        "INVALID_SORT_MODIFIER",
		"hist:keys=common_pid:vals=bytes_req,bytes_alloc:^sort=common_pid,bytes_req,delta": "TOO_MANY_SORT_FIELDS",
		"hist:keys=common_pid:x=32+^10*3/20-4":                                             "TOO_MANY_SUBEXPR",
		"hist:keys=common_pid:x=^1+2+3+4+5":                                                "TOO_MANY_SUBEXPR",
		"hist:keys=common_pid:x=-(^1)+2":                                                   "UNARY_MINUS_SUBEXPR",
		"hist:keys=common_pid:x=3/^0":                                                      "DIVISION_BY_ZERO",
		"hist:keys=^junk":                                                                  "FIELD_NOT_FOUND",
		"hist:keys=delta.^junk":                                                            "BAD_FIELD_MODIFIER",
		"hist:keys=delta.^execname":                                                        "BAD_FIELD_MODIFIER",
		"hist:keys=delta.^percent":                                                         "BAD_FIELD_MODIFIER",
		"hist:keys=name.^hex":                                                              "BAD_FIELD_MODIFIER",
		"hist:keys=delta.^buckets=0":                                                       "BAD_FIELD_MODIFIER",
		"hist:keys=delta:vals=^bytes_req.log2":                                             "BAD_FIELD_MODIFIER",
		"hist:keys=delta:x=^bytes_req.log2":                                                "BAD_FIELD_MODIFIER",
		"hist:keys=delta:vals=^name":                                                       "INVALID_STR_OPERAND",
		"hist:keys=delta:x=^name+1":                                                        "INVALID_STR_OPERAND",
		"hist:keys=delta:x=$^none":                                                         "VAR_NOT_FOUND",
		"hist:keys=delta:^aa=$bb+1,bb=$aa+1":                                               "VAR_NOT_FOUND",
		"hist:x=bytes_req+1:keys=^$x":                                                      "INVALID_REF_KEY",
		"hist:keys=delta:x=1:^x=2":                                                         "DUPLICATE_VAR",
		"hist:keys=delta:x=1,^yy":                                                          "MALFORMED_ASSIGNMENT",
		"hist:keys=delta:x=^12cd":                                                          "EXPECT_NUMBER",
		"hist:keys=common_pid:x=common_timestamp-common_timestamp.usecs":                   "TIMESTAMP_MISMATCH",
		"hist:keys=delta:clock=^junk":                                                      "SET_CLOCK_FAIL",
		"hist:keys=delta:nohitcount":                                                       "NEED_NOHC_VAL",
		"hist:keys=delta:onmax(^bytes_req).save(name)":                                     "ONX_NOT_VAR",
		"hist:keys=delta:onmax($^junk).save(name)":                                         "ONX_VAR_NOT_FOUND",
		"hist:keys=delta:x=1:onmax($x).save(^none)":                                        "FIELD_VAR_CREATE_FAIL",
		"hist:keys=delta:x=1:onmax($x).save()":                                             "NO_SAVE_PARAMS",
		"hist:keys=delta:x=1:onmax($x)":                                                    "ACTION_NOT_FOUND",
		"hist:keys=delta:x=1:onmax($x).save(name):onchange($x).save(name)":                 "TOO_MANY_SAVE_ACTIONS",
		"hist:keys=delta:x=1:onmax($x).^latency($x)":                                       "SYNTH_EVENT_NOT_FOUND",
		"hist:keys=delta:onmatch(sched.switch).^latency($x)":                               "SYNTH_EVENT_NOT_FOUND",
		"hist:keys=delta:onmatch(sched.switch).trace(^latency,$x)":                         "SYNTH_EVENT_NOT_FOUND",
		"hist:keys=delta:onmatch(sched.switch).^save(name)":                                "ACTION_MISMATCH",
		"hist:keys=delta:onmatch(^sched).trace(latency)":                                   "SUBSYS_NOT_FOUND",
		"hist:keys=delta:onmatch(^sched.switch":                                            "NO_CLOSING_PAREN",
		"hist:vals=bytes_req":                                                              "NO_KEYS",
		"hist:keys=delta,name,bytes_req,^call_site":                                        "TOO_MANY_KEYS",
		"hist:keys=delta:vals=bytes_req,bytes_alloc,^call_site":                            "TOO_MANY_VALS",
		"hist:keys=delta:^size=10":                                                         "BAD_SIZE",
		"hist:keys=delta:^size=1000000":                                                    "BAD_SIZE",
		"hist:keys=delta:^junk":                                                            "UNKNOWN_ATTR",
		"hist:keys=^words":                                                                 "ARRAY_FIELD",
		"hist:keys=delta:x=^1+":                                                            "BAD_EXPRESSION",
		"hist:keys=delta:x=^-1":                                                            "BAD_EXPRESSION",
		"^junk":                                                                            "UNKNOWN_TRIGGER",
		"^disable_event+1":                                                                 "UNKNOWN_TRIGGER",
		"enable_event:^junk":                                                               "NO_TARGET",
		"enable_event":                                                                     "NO_TARGET",
		"enable_event:a:b:^x":                                                              "BAD_COUNT",
		"enable_event:a:b:":                                                                "BAD_COUNT",
		"traceoff:^5x":                                                                     "BAD_COUNT",
		"traceoff:^x":                                                                      "NO_IF",
		"traceoff ^if":                                                                     "NO_IF",
	} {
		checkError(t, line, id)
	}
}

func checkError(t *testing.T, line, id string) {
	t.Helper()
	command := strings.Replace(line, "^", "", 1)
	_, err := Parse(command, alloc)
	var e *caret.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v", line, err)
		return
	}
	if e.ID != id || e.Column != max(0, strings.IndexByte(line, '^')) || e.Command != command || e.Text == "" {
		t.Errorf("%s\nfails with %s (%q) at %d of %s\nwant       %s", line, e.ID, e.Text, e.Column, e.Command, id)
	}
	if system := "hist:kmem:kmalloc"; strings.HasPrefix(command, "hist:") && e.System != system {
		t.Errorf("%s: system %s, want %s", line, e.System, system)
	}
}

func TestErrorsHaveTheirErrno(t *testing.T) {
	for command, want := range map[string]syscall.Errno{
		"hist:keys=delta:x=1/0":      syscall.EDOM,
		"hist:keys=delta:nohitcount": syscall.ENOENT,
		"hist:keys=junk":             syscall.EINVAL,
		"junk":                       syscall.EINVAL,
	} {
		if _, err := Parse(command, alloc); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", command, err, want)
		}
	}
	if _, err := Parse(strings.Repeat("x", 1<<20), alloc); err == nil || len(err.Error()) > 200 {
		t.Errorf("a command of 1 MB: %v", err)
	}
}

func TestWhichTriggersAreTheSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"traceon", "traceoff:3", true},
		{"traceon", "traceon if delta == 1", true},
		{"traceon", "snapshot", false},
		{"enable_event:a:b", "disable_event:a:b:3", true},
		{"enable_event:a:b", "enable_event:a:c", false},
		{"enable_event:a:b", "enable_hist:a:b", false},
		{"hist:keys=delta", "hist:keys=delta:size=4096:pause", true},
		{"hist:keys=delta", "hist:keys=delta:vals=hitcount", true},
		{"hist:keys=delta", "hist:keys=delta:sort=delta", false},
		{"hist:keys=delta", "hist:keys=delta if delta > 1", false},
		{"hist:keys=delta", "hist:keys=delta:name=x", false},
		{"hist:keys=delta", "hist:keys=delta.hex", false},
		{"hist:keys=delta:x=1", "hist:keys=delta:y=1", false},
	} {
		a, err := Parse(c.a, alloc)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Parse("!"+c.b, alloc)
		if err != nil {
			t.Fatal(err)
		}
		if a.Same(b) != c.same || b.Same(a) != c.same {
			t.Errorf("%s and %s: same is not %v", c.a, c.b, c.same)
		}
	}
}

// FuzzParse: nothing panics, and what is listed can be written again and is listed the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"traceoff:3 if delta > 1", "enable_event:a:b:2", "!hist:keys=delta,name:vals=bytes_req:size=200",
		"hist:keys=call_site.sym-offset,common_pid.execname:a=delta*2:b=$a-1:onmax($b).save(name):NOHC:val=hitcount.graph",
		"hist:keys=delta" + doubling(maxVars), "hist:keys=bytes_req.buckets=3:x=-(delta+1)/3", "hist:keys=stacktrace:sort=hitcount.descending:clear",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := Parse(text, alloc)
		if err != nil {
			return
		}
		listed := tr.String()
		again, err := Parse(strings.TrimSuffix(strings.TrimSuffix(rewritable(listed), " [active]"), " [paused]"), alloc)
		if err != nil {
			t.Fatalf("%q is listed as %q, which is refused: %v", text, listed, err)
		}
		again.paused.Store(tr.paused.Load())
		if again.String() != listed {
			t.Fatalf("%q is listed as %q and then as %q", text, listed, again)
		}
		if tr.Hist != nil {
			hist := NewHist(tr.Hist)
			hist.Add(&Hit{Values: make([]fetch.Value, len(alloc.Fields))})
			if err := hist.Print(&strings.Builder{}, listed, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// doubling is n variables, each of which is the sum of four times the one before it.
func doubling(n int) string {
	s := ":v0=delta+0"
	for i := 1; i < n; i++ {
		s += strings.ReplaceAll(":v"+strconv.Itoa(i)+"=$v+$v+$v+$v", "$v", "$v"+strconv.Itoa(i-1))
	}
	return s
}

// rewritable is a listed command as it can be written: counts are listed in another form.
func rewritable(s string) string {
	if strings.HasPrefix(s, "hist:") {
		return s
	}
	s = strings.Replace(s, ":unlimited", "", 1)
	return strings.Replace(s, ":count=", ":", 1)
}
