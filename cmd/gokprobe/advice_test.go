package main

import (
	"strings"
	"testing"
)

// A SPEC that is written as other tools have it, or as people would, is answered by how it is written here.
func TestSpecsThatNameNothingAreAnsweredByWhatToWrite(t *testing.T) {
	p := prey(t)
	for _, c := range []struct{ spec, want string }{
		{"fooo", "did you mean foo"},
		{"FOO", "did you mean foo"},
		{"foo()", "write foo, which stands for all functions of that name"},
		{"foo(long)", "write foo, which"},
		{"foo + 1", "write foo+1, without spaces"},
		{"foo +1", "write foo+1, without spaces"},
		{"fooo+1", "did you mean foo"},
		{"foo%return+1", "a return has no offset: write foo%return"},
		{"foo-4", "an offset is counted from the function's first byte on: foo+N"},
		{"foo,six", "give -sym once for each"},
		{"^foo$", "a pattern is as in a shell"},
		{"foo.*", "a pattern as in a shell"},
		{"foo%ret", "returns are written foo%return"},
		{"foo:exit", "returns are written foo%return"},
		{"r:foo", "returns are written foo%return"},
		{"foo:entry", "a probe stands at the entry: write foo"},
		{"uprobe:prey:foo", "write prey:foo"},
		{"uretprobe:prey:foo", "returns are written prey:foo%return"},
		{"p:foo", "write foo"},
		{"foo@plt", "write foo, the function itself"},
		{"lbic:malloc", "did you mean libc"},
		{"libc:mallocc", "did you mean malloc"},
		{"foo+1000", "lies behind the function's end"},
		{"prey.c:9999", "no code at the line"},
		{"stdout", "is a variable"},
		{"0x10", "in no mapping"},
	} {
		r := gokprobe(t, "attach", "-p", pidOf(p), "-sym", c.spec)
		if strings.Contains(r.stderr, "mean ,") || strings.Contains(r.stderr, "mean or") || strings.HasSuffix(r.stderr, "mean \n") || strings.Contains(r.stderr, "mean ;") {
			t.Errorf("%s: nothing is suggested: %q", c.spec, r.stderr)
		}
		if strings.Contains(r.stderr, "without spaces") && !strings.Contains(c.spec, " ") {
			t.Errorf("%s has no spaces: %q", c.spec, r.stderr)
		}
		if r.status != exitPlace && r.status != exitUsage || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, stderr %q, want %q", c.spec, r.status, r.stderr, c.want)
		}
	}
	r := gokprobe(t, "attach", "-p", pidOf(p), "-sym", "length", "-arg", "n=%di", "-filter", "m == 3")
	if want := "-filter: Field not found (FIELD_NOT_FOUND)\n  m == 3\n    ^\n  a filter compares -arg's names"; r.status != 2 || !strings.Contains(r.stderr, want) {
		t.Errorf("status %d, stderr %q, want %q", r.status, r.stderr, want)
	}
	p.CheckClean()
}

// Mistakes that people make are answered by what to write instead.
func TestMistakesAreAnsweredByWhatToWrite(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"-duration 5", "-duration 5 has no unit: write -duration 5s for seconds, or ms, m, h"},
		{"-duration 0.5", "-duration 0.5 has no unit: write -duration 0.5s"},
		{"-duration soon", `invalid value "soon" for flag -duration`},
		{"-max-hits 5s", `invalid value "5s" for flag -max-hits`},
		{"-arg n=%foo", "registers are named as in assembly"},
		{"-arg n=$retval", "add -ret, or name the function as SPEC%return"},
		{"-arg n=$arg0", "arguments are counted from 1"},
		{"-arg n=$args", "write $arg1, $arg2"},
		{"-arg n=$argz", "write $arg1, $arg2"},
		{"-arg n=%di:int", "types are u8 to u64"},
		{"-arg n=%di:u7", "types are u8 to u64"},
		{"-arg n=%di:b9@0/8", "a bit field is written bWIDTH@SHIFT/SIZE"},
		{"-arg n=%di:string", "a text lies at an address"},
		{"-arg n=+8%di", "the memory at an address is written +OFFSET(ADDRESS)"},
		{"-arg n=+8(%di", "close the bracket"},
		{"-arg n=+0(%di):u8[65]", "an array has 1 to 64 elements"},
		{"-arg n=+0(%di):u8[0]", "an array has 1 to 64 elements"},
		{"-arg 5n=%di", "a name has letters, digits and _"},
		{"-arg n-m=%di", "a name has letters, digits and _"},
		{"-arg =%di", ""},
		{"-arg n=%di -arg n=%si", "give it another name"},
		{"-arg n=!x", "write a parameter's name"},
		{"-arg n=x.", "Invalid name of a value"},
		{"-arg n=x[]", "Invalid index"},
		{"-arg n=len(x", "is not closed"},
		{"-arg n=p-len", "a pointer's member follows ->"},
		{"-arg n=%di -filter n=3", "operators are =="},
		{"-arg n=%di -filter n=='a'", "it is compared with a number"},
		{"-arg n=%di:s32 -filter n~3", "numbers are compared with"},
		{"-arg n=%di:u32 -filter n==-3", "one without a sign is not negative"},
		{"-arg n=+0(%di):string -filter n==3", "it is compared with a text in quotes"},
		{"-arg n=+0(%di):f64 -filter n&3", "numbers are compared with"},
	} {
		r := gokprobe(t, append([]string{"attach", "-p", "1", "-sym", "foo"}, strings.Fields(c.flags)...)...)
		if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, stderr %q, want %q", c.flags, r.status, r.stderr, c.want)
		}
	}
}
