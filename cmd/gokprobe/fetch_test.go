package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// lines are the hits without times and addresses, which differ from run to run.
func fetchedLines(t *testing.T, hits []hitLine) string {
	t.Helper()
	var all []string
	for _, h := range hits {
		line := h.Probe + " " + string(h.Args)
		if h.Ret != nil {
			line += fmt.Sprint(" ", *h.Ret)
		}
		all = append(all, line)
	}
	return strings.Join(all, "\n")
}

// The same is recorded by the target and by the tracer.
func TestArgumentsAndFilters(t *testing.T) {
	for _, c := range []struct {
		flags []string
		calls []string
		want  []string
		hits  uint64 // in the summary
		stops bool   // the tracer follows calls, for what is fetched at their entry
	}{
		{
			[]string{"-sym", "foo", "-arg", "n=$arg1:s32", "-arg", "x=%di", "-arg", "low=%di:u8", "-arg", "four=\\4:u8", "-arg", "name=$comm", "-arg", `said=\"hi"`},
			[]string{"foo 3", "foo -1"},
			[]string{`foo {"n":3,"x":3,"low":3,"four":4,"name":"prey","said":"hi"}`, `foo {"n":-1,"x":18446744073709551615,"low":255,"four":4,"name":"prey","said":"hi"}`}, 2, false,
		},
		{
			[]string{"-sym", "length", "-arg", "s=+0($arg1):string", "-arg", "c=+0(%di):char[4]", "-arg", "first=+0($arg1):char", "-arg", "at=@text:string", "-arg", "b=@text:b4@4/8", "-arg", "bad=+0(\\8):u32", "-arg", "none=+0(\\8):string", "-arg", "w=@text:x16[3]"},
			[]string{"string 1"},
			[]string{`length {"s":"test","c":["t","e","s","t"],"first":"t","at":"test","b":7,"bad":null,"none":null,"w":[25972,29811,0]}`}, 1, false,
		},
		{
			[]string{"-sym", "sum6", "-arg", "a=$arg1:s32", "-arg", "f=$arg6:s32", "-arg", "from=$stack0:symstr", "-filter", "a > 1 && f & 1 && from ~ \"six+*\""},
			[]string{"six 1", "six 2", "six 3", "six 4"},
			[]string{`sum6 {"a":2,"f":7,"from":"six+`, `sum6 {"a":4,"f":9,"from":"six+`}, 2, false,
		},
		{
			[]string{"-sym", "foo", "-arg", "n=$arg1:s64", "-filter", "n < 0 || n == 7"},
			[]string{"foo 1", "foo 7", "foo -7", "foo 0"},
			[]string{`foo {"n":7}`, `foo {"n":-7}`}, 2, false,
		},
		{
			[]string{"-sym", "foo", "-arg", "n=$arg1:s64", "-args", "-filter", "n == 7 && comm == 'prey' && common_pid > 1"},
			[]string{"foo 1", "foo 7"},
			[]string{`foo {"v":7,"n":7}`}, 1, false,
		},
		{
			[]string{"-sym", "sum6", "-args", "-filter", "b == 2 && f > 5"},
			[]string{"six 0", "six 1", "six 2"},
			[]string{`sum6 {"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`}, 1, false,
		},
		{
			[]string{"-sym", "length", "-args", "-filter", "s ~ 't*t' && s != 'tt'"},
			[]string{"string 1"},
			[]string{`length {"s":"test"}`}, 1, false,
		},
		{
			[]string{"-sym", "sum6%return", "-args", "-arg", "b=\\7:u8", "-filter", "b == 7 && f == 3 && ret > 0"},
			[]string{"six -1", "six -2"},
			[]string{`sum6%return {"a":-2,"c":0,"d":1,"e":2,"f":3,"b":7} 3`}, 1, true,
		},
		{
			[]string{"-sym", "sum6", "-args", "-arg", "b=\\9:u8"},
			[]string{"six 1"},
			[]string{`sum6 {"a":1,"c":3,"d":4,"e":5,"f":6,"b":9}`}, 1, false,
		},
		{
			[]string{"-sym", "length", "-arg", "s:string", "-arg", "at=s", "-arg", "s1=+1(s):char"},
			[]string{"string 1"},
			[]string{`length {"s":"test","at":`}, 1, false,
		},
		{
			[]string{"-sym", "sum6", "-sym", "sum6%return", "-arg", "b", "-arg", "f", "-filter", "b < 0 && f > -3"},
			[]string{"six 1", "six -7"},
			[]string{`sum6 {"b":-6,"f":-2}`, `sum6%return {"b":-6,"f":-2} -27`}, 1, false,
		},
		{
			[]string{"-sym", "length", "-ret", "-arg", "$retval", "-arg", "s:string"},
			[]string{"string 1"},
			[]string{`length {"arg1":4,"s":"test"} 4`}, 1, true,
		},
		{
			[]string{"-sym", "foo", "-filter", "comm != 'prey'"},
			[]string{"foo 1"}, nil, 0, false,
		},
		{
			[]string{"-sym", "foo", "-count", "-arg", "n=$arg1:s64", "-filter", "n < 3"},
			[]string{"foo 1", "foo 2", "foo 3"}, nil, 2, false,
		},
		{
			[]string{"-sym", "foo", "-count", "-filter", "comm ~ 'p*'"},
			[]string{"foo 1", "foo 2", "foo 3"}, nil, 3, false,
		},
		{
			[]string{"-sym", "foo", "-arg", "n=$arg1:s64", "-filter", "n != 2", "-max-hits", "2"},
			[]string{"foo 1", "foo 2", "foo 3"},
			[]string{`foo {"n":1}`, `foo {"n":3}`}, 2, false,
		},
		{
			[]string{"-sym", "foo", "-ret", "-arg", "r=$retval:s32", "-arg", "low=$retval:u8", "-arg", "t=@text:string", "-filter", "r > 3 && ret < 15 && duration_ns > 0 && t == 'test'"},
			[]string{"foo 1", "foo 2", "foo 7", "foo -2"},
			[]string{`foo {"r":5,"low":5,"t":"test"} 5`}, 1, false,
		},
		{
			[]string{"-sym", "foo", "-ret", "-arg", "r=$retval:s32", "-filter", "r < 0"},
			[]string{"foo 1", "foo -2", "foo -5"},
			[]string{`foo {"r":-3} -3`, `foo {"r":-9} -9`}, 2, false,
		},
		{
			[]string{"-sym", "foo", "-ret", "-arg", "r=$retval:s32", "-arg", "n=$arg1", "-filter", "r > 3 && ret < 15 && duration_ns > 0"},
			[]string{"foo 1", "foo 2", "foo 3", "foo 7"},
			[]string{`foo {"r":5,"n":2} 5`, `foo {"r":7,"n":3} 7`}, 2, true,
		},
		{
			[]string{"-sym", "length%return", "-arg", "s=+0($arg1):string", "-filter", "s == 'test'", "-count"},
			[]string{"string 1", "string 2"}, nil, 2, true,
		},
	} {
		for _, extra := range [][]string{nil, {"-no-optimize"}} {
			p := prey(t)
			l := attachTo(t, p, append(append(extra, "-format", "json"), c.flags...)...)
			for _, call := range c.calls {
				p.Do("call "+call, "ret")
			}
			r := l.interrupt()
			hits, sum := records(t, r.stdout)
			got := strings.Split(fetchedLines(t, hits), "\n")
			if len(hits) != len(c.want) || sum.Lost != 0 || sum.Probes[0].Hits != c.hits || r.status != 0 {
				t.Errorf("%v %v: status %d, %+v\n%s%s", c.flags, extra, r.status, sum, r.stdout, r.stderr)
			}
			for i, want := range c.want {
				if i < len(got) && !strings.HasPrefix(got[i], want) {
					t.Errorf("%v %v: got %s, want %s", c.flags, extra, got[i], want)
				}
			}
			if p0 := sum.Probes[0]; extra == nil && !c.stops && p0.Mechanism != "optimized" && !testprog.NoJumpHere(p0.Reason) {
				t.Errorf("%v: not optimized: %+v", c.flags, sum)
			}
			p.CheckClean()
			p.Quit()
		}
	}
}

func TestFetchedArgumentsAsText(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "length", "-arg", "s=+0($arg1):string", "-arg", "c=+0(%di):char[2]", "-arg", "x=@text:x16", "-arg", "bad=+0(\\8):u32[2]", "-arg", "f=$stack0:symbol")
	p.Do("call string 1", "ret")
	line := l.line()
	l.interrupt()
	if want := ` s="test" c={'t','e'} x=0x6574 bad={(fault),(fault)} f=string+0x`; !strings.Contains(line, want) {
		t.Errorf("%s lacks %s", line, want)
	}
	p.Quit()
}

// Mistakes are shown before anything is done.
func TestMistakesInExpressionsAreShownWithACaret(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-arg", "n=%foo"}, "-arg: Invalid register name (BAD_REG_NAME)\n  n=%foo\n    ^\n"},
		{[]string{"-arg", "n=$retval"}, "-arg: $retval is not available on probe (RETVAL_ON_PROBE)\n  n=$retval\n    ^\n"},
		{[]string{"-arg", "a=%di", "-arg", "a=%si"}, "(USED_ARG_NAME)\n  a=%si\n  ^\n"},
		{[]string{"-arg", "é=%di"}, "(BAD_ARG_NAME)\n  é=%di\n  ^\n"},
		{[]string{"-arg", "n=%di", "-filter", "n == 1 && = 3"}, "-filter: Meaningless filter expression (INVALID_FILTER)\n  n == 1 && = 3\n            ^\n"},
		{[]string{"-arg", "s=+0(%di):string", "-filter", "s == abc"}, "did you forget quotes"},
		{[]string{"-arg", "n=@text", "-count"}, "-arg needs a -filter"},
		{[]string{"-filter", " "}, "-filter needs a condition"},
	} {
		r := gokprobe(t, append([]string{"attach", "-p", "1", "-sym", "foo"}, c.flags...)...)
		if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) || !strings.HasPrefix(r.stderr, "gokprobe: -") {
			t.Errorf("%v: status %d, stderr %q", c.flags, r.status, r.stderr)
		}
	}
}

// What only the process tells leaves nothing behind either.
func TestExpressionsThatThePlaceRefuses(t *testing.T) {
	p := prey(t)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-sym", "foo", "-arg", "n=@nothing"}, "-arg: "},
		{[]string{"-sym", "foo", "-arg", "n=@nothing+2"}, "^"},
		{[]string{"-sym", "foo", "-args", "-filter", "w == 1"}, "(FIELD_NOT_FOUND)\n  w == 1\n    ^\n"},
		{[]string{"-sym", "foo", "-arg", "n=nothing"}, "(NO_BTFARG)\n  n=nothing\n    ^\n"},
		{[]string{"-sym", "libc.so.6:strlen", "-arg", "s:string"}, "-arg s:string names a parameter or a variable, but "},
		{[]string{"-sym", "foo+*", "-arg", "n=$arg1"}, "(NOFENTRY_ARGS)\n  n=$arg1\n"},
		{[]string{"-sym", "foo", "-arg", "n=$stack0", "-filter", "n.function == nothing"}, "(NO_FUNCTION)"},
	} {
		r := gokprobe(t, append([]string{"attach", "-p", pidOf(p)}, c.flags...)...)
		if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: status %d, stderr %q", c.flags, r.status, r.stderr)
		}
	}
	r := lasting(t, "attach", "-p", pidOf(p), "-sym", "length", "-arg", "n=$stack0", "-filter", "n.function == string", "-format", "json")
	if r.status != 0 {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

// Parameters by their names in the source, and what they lead to.
func TestArgumentsByTheirNames(t *testing.T) {
	for _, c := range []struct {
		fixture string
		flags   []string
		want    string
	}{
		{"typed", []string{"-sym", "handle", "-arg", "count", "-arg", "n=r->next->number", "-arg", "path=r->path:string", "-arg", "v=r->next->version", "-filter", "n == 7 && v == 17"},
			`handle {"count":7,"n":7,"path":"/first","v":17}`},
		{"typed", []string{"-sym", "handle", "-ret", "-arg", "code=$retval->status.code", "-arg", "was=r->number"}, `handle {"code":-404,"was":8}`},
		{"govalues", []string{"-sym", "main.(*Point).Moved", "-arg", "x=p->X", "-arg", "v", "-filter", "x == 1 && v == 7"}, `main.(*Point).Moved {"x":1,"v":7}`},
		{"govalues", []string{"-sym", "main.parse", "-arg", "s:string", "-arg", "v", "-filter", "s == 'text'"}, `main.parse {"s":"text","v":7}`},
		{"govalues", []string{"-sym", "main.parse", "-ret", "-arg", "s:string"}, `main.parse {"s":"text"} 11`},
		{"govalues", []string{"-sym", "main.parse", "-args", "-filter", "s ~ 't*' && v == 7"}, `main.parse {"s":"text","v":7}`},
		{"cxxvalues", []string{"-sym", "values::view", "-ret", "-arg", "got=$retval:string", "-filter", "got == 'ults'"}, `values::view {"got":"ults"}`},
		{"cxxvalues", []string{"-sym", "values::view", "-arg", "s:string", "-arg", "v"}, `values::view {"s":"results","v":7}`},
	} {
		for _, extra := range [][]string{nil, {"-no-optimize"}} {
			p := testprog.Start(t, testprog.Build(t, c.fixture))
			l := attachTo(t, p, append(append(extra, "-format", "json"), c.flags...)...)
			p.Do("call 7", "ret")
			r := l.interrupt()
			hits, _ := records(t, r.stdout)
			// A Go function begins again after its stack has grown.
			got := strings.Join(slices.Compact(strings.Split(fetchedLines(t, hits), "\n")), "\n")
			if strings.Contains(got, "\n") || !strings.HasPrefix(got, c.want) || r.status != 0 {
				t.Errorf("%v %v: status %d, got %s, want %s\n%s", c.flags, extra, r.status, got, c.want, r.stderr)
			}
			p.CheckClean()
			p.Quit()
		}
	}
	p := prey(t)
	r := gokprobe(t, "attach", "-p", pidOf(p), "-sym", "foo", "-arg", "n=gone")
	if r.status != 2 || !strings.Contains(r.stderr, "(NO_BTFARG)\n  n=gone\n    ^") {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
	p.Quit()
}

// Whatever way a hit takes, it is counted once if it meets the filter.
func TestFiltersUnderThreads(t *testing.T) {
	for _, flags := range [][]string{
		{"-filter", "n < 100 && n & 1"},
		{"-filter", "n < 100 && n & 1", "-count"},
		{"-filter", "n < 100 && n & 1", "-no-optimize"},
		{"-filter", "n < 100 && n & 1", "-ret"},
		{"-filter", "n < 100 && n & 1", "-ret", "-count"},
		{"-filter", "n < 100 && n & 1 && name ~ 'p*'", "-arg", "name=$comm"},
		{"-filter", "r < 200 && r & 2", "-ret", "-arg", "r=$retval:u64"},
	} {
		p := prey(t)
		l := attachTo(t, p, append(flags, "-sym", "foo", "-arg", "n=$arg1:u64", "-format", "json")...)
		p.Do("threads 8 2000 foo", "sum")
		hits, sum := records(t, l.interrupt().stdout)
		want := 400
		if strings.Contains(strings.Join(flags, " "), "-count") {
			want = 0
		}
		if sum.Probes[0].Hits != 400 || sum.Probes[0].NMissed != 0 || len(hits)+int(sum.Lost) != want {
			t.Errorf("%v: %d records, %+v", flags, len(hits), sum)
		}
		p.CheckClean()
		p.Quit()
	}
}
