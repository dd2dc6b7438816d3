package dynevent

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// nested is an argument of n dereferences.
func nested(n int, inner string) string {
	return strings.Repeat("+0(", n) + inner + strings.Repeat(")", n)
}

// What is just allowed, and what is one more. The instructions are the kernel's: load, dereferences, store, bit field, loop and end are 16 at
// most (FETCH_INSN_MAX).
func TestLimits(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct{ allowed, tooMuch, id string }{
		{"p:" + x(63) + "/e f", "p:" + x(64) + "/e f", "GROUP_TOO_LONG"},
		{"p:g/" + x(63) + " f", "p:g/" + x(64) + " f", "EVENT_TOO_LONG"},
		{"p f " + x(32) + "=%ax", "p f " + x(33) + "=%ax", "ARG_NAME_TOO_LONG"},
		{"p f a=\\0x" + strings.Repeat("0", 60), "p f a=\\0x" + strings.Repeat("0", 61), "ARG_TOO_LONG"},
		{"r4096 f", "r4097 f", "MAXACT_TOO_BIG"},
		{"r4096 f", "r4294967296 f", "BAD_MAXACT"},
		{"p f+4294967295", "p f+4294967296", "BAD_PROBE_ADDR"},
		{"p f+4294967295", "p f+18446744073709551616", "BAD_PROBE_ADDR"},
		{"p f $stack2048", "p f $stack2049", "BAD_STACK_NUM"},
		{"p /f:1 $stack4294967295", "p /f:1 $stack4294967296", "BAD_STACK_NUM"},
		{"p f x=$arg2048", "p f x=$arg2049", "BAD_ARG_NUM"},
		{"p f x=$arg1", "p f x=$arg0", "BAD_ARG_NUM"},
		{"p f @1:u8[64]", "p f @1:u8[65]", "ARRAY_TOO_BIG"},
		{"p f %ax:b64@0/64", "p f %ax:b65@0/64", "BAD_BITFIELD"},
		{"p f %ax:b1@63/64", "p f %ax:b1@64/64", "BAD_BITFIELD"},
		{"p f %ax:b8@8/16", "p f %ax:b8@9/16", "BAD_BITFIELD"},
		{`p f \9223372036854775807`, `p f \-9223372036854775809`, "BAD_IMM"},
		{`p f \-9223372036854775808`, `p f \+9223372036854775808`, "BAD_IMM"},
		{`p f \18446744073709551615`, `p f \18446744073709551616`, "BAD_IMM"},
		{"p f +9223372036854775807(%ax)", "p f +9223372036854775808(%ax)", "BAD_DEREF_OFFS"},
		{"p f -9223372036854775808(%ax)", "p f -9223372036854775809(%ax)", "BAD_DEREF_OFFS"},
		{"p f +0x7f(%ax)", "p f +0x(%ax)", "BAD_DEREF_OFFS"},
		{"p f ++7(%ax)", "p f +-+7(%ax)", "BAD_DEREF_OFFS"},
		{"p f " + nested(14, "%ax"), "p f " + nested(15, "%ax"), "TOO_MANY_OPS"},
		{"p f " + nested(13, "@1"), "p f " + nested(14, "@1"), "TOO_MANY_OPS"},
		{"p f " + nested(12, "@s"), "p f " + nested(13, "@s"), "TOO_MANY_OPS"},
		{"p f " + nested(12, "@s") + ":string", "p f " + nested(12, "@s") + ":symstr", "TOO_MANY_OPS"},
		{"p f " + nested(11, "@s") + ":u8[9]", "p f " + nested(12, "@s") + ":u8[9]", "TOO_MANY_OPS"},
		{"p f " + nested(11, "@s") + ":b1@1/8", "p f " + nested(12, "@s") + ":b1@1/8", "TOO_MANY_OPS"},
		{"p f " + nested(10, "@s") + ":b1@1/8[2]", "p f " + nested(11, "@s") + ":b1@1/8[2]", "TOO_MANY_OPS"},
		{"p f " + nested(10, "@s") + ":string[2]", "p f " + nested(11, "@s") + ":string[2]", "TOO_MANY_OPS"},
		{"p f+4 x=%ax", "p f+4 x=$arg1", "NOFENTRY_ARGS"},
		{"p +4", "p +f", "BAD_PROBE_ADDR"},
		{"p f @s-4", "p f @-4", "BAD_MEM_ADDR"},
		{"p m:f+4", "p m:+4", "BAD_PROBE_ADDR"},
		{"p f +0(%ax):string[2]", "p f +0(%ax):symstr[2]", "BAD_STRING"},
		{"p m:12+0", "p 12+0", "BAD_PROBE_ADDR"},
		{"p f-fm", "p f-", "BAD_PROBE_ADDR"},
	} {
		if _, err := ParseDynamic(c.allowed, Context{}); err != nil {
			t.Errorf("%s: %v", c.allowed, err)
		}
		var e *caret.Error
		if _, err := ParseDynamic(c.tooMuch, Context{}); !errors.As(err, &e) || e.ID != c.id {
			t.Errorf("%s: %v, want %s", c.tooMuch, err, c.id)
		}
	}
}

// A number that is one, but too big, has an errno of its own.
func TestNumbersThatAreTooBig(t *testing.T) {
	const big = "18446744073709551616"
	for line, want := range map[string]syscall.Errno{
		"p /f:" + big: syscall.ERANGE, "p /f:1x": syscall.EINVAL, "p /f:1(" + big + ")": syscall.ERANGE, "p /f:1(x)": syscall.EINVAL, "p /f:1 @+" + big: syscall.ERANGE,
		"p f @" + big: syscall.ERANGE, "p f @1z": syscall.EINVAL, "p f +" + big + "(%ax)": syscall.ERANGE, "p f +-9223372036854775809(%ax)": syscall.ERANGE,
		"p f +--1(%ax)": syscall.EINVAL, `p f \` + big: syscall.ERANGE, `p f \x`: syscall.EINVAL, `p f \0x`: syscall.EINVAL,
	} {
		if _, err := ParseDynamic(line, Context{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", line, err, want)
		}
	}
}
