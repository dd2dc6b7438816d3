package main

import (
	"strings"
	"testing"
)

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
		{"-arg n=+8%di", "what lies at an address is written +OFFSET(ADDRESS)"},
		{"-arg n=+8(%di", "close the bracket"},
		{"-arg n=+0(%di):u8[65]", "an array has 1 to 64 elements"},
		{"-arg n=+0(%di):u8[0]", "an array has 1 to 64 elements"},
		{"-arg 5n=%di", "a name has letters, digits and _"},
		{"-arg n-m=%di", "a name has letters, digits and _"},
		{"-arg =%di", ""},
		{"-arg n=%di -arg n=%si", "give it another name"},
		{"-arg n=&x", "write a parameter's name"},
		{"-arg n=p-len", "a pointer's member follows ->"},
		{"-arg n=%di -filter m==3", "a filter compares -arg's names"},
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
