package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// advice maps the kernel's names for mistakes in fetch arguments and filters to a line that
// says what to write instead.
var advice = map[string]string{
	"BAD_ARG_NAME":      "a name has letters, digits and _, and begins with no digit: n=$arg1",
	"BAD_ARG_NUM":       "arguments are counted from 1: $arg1",
	"BAD_ARRAY_NUM":     "an array has 1 to 64 elements: +0($arg1):u32[4]",
	"ARRAY_TOO_BIG":     "an array has 1 to 64 elements: +0($arg1):u32[4]",
	"BAD_BITFIELD":      "a bit field is written bWIDTH@SHIFT/SIZE, in a number of 8, 16, 32 or 64 bits: b4@4/32",
	"BAD_FETCH_ARG":     "write a parameter's name, $arg1, $retval, %REGISTER, @SYMBOL or +OFFSET(…)",
	"BAD_HYPHEN":        "a pointer's member follows ->: req->len",
	"BAD_REG_NAME":      "registers are named as in assembly: %di, %eax, %r8",
	"BAD_STRING":        "a text lies at an address: +0($arg1):string; of a parameter write NAME:string",
	"BAD_TYPE":          "types are u8 to u64, s8 to s64, x8 to x64, f32, f64, char, string, symbol, symstr, b4@4/32, and TYPE[N]",
	"BAD_TYPE4STR":      "only pointers to and arrays of characters are texts; leave :string out",
	"BAD_VAR":           "write $arg1, $arg2 …, $retval, $stack, $stack0 …, or $comm",
	"DEREF_NEED_BRACE":  "the memory at an address is written +OFFSET(ADDRESS): +8($arg1)",
	"DEREF_OPEN_BRACE":  "close the bracket: +8($arg1)",
	"FIELD_NOT_FOUND":   "a filter compares -arg's names, comm and common_pid, parameters, variables outside of functions, errno and at a line local variables, with members and elements as in the source, and what -arg can fetch; at returns duration_ns, and ret if it is a whole number",
	"NOFENTRY_ARGS":     "$arg1 … exist at a function's first instruction only; name registers: %di",
	"NOSUP_BTFARG":      "names are known where debug information has them; name registers: %di",
	"NOSUP_DAT_ARG":     "no type has the whole value: name a member, NAME.MEMBER, or a type, NAME:x64",
	"NO_BTFARG":         "-args and -locals show what has a name there; what is in a floating-point register, is computed, or is in an unknown place can't be compared",
	"NO_BTF_ENTRY":      "without debug information name $arg1, $arg2 … or registers",
	"NO_BTF_FIELD":      "the structure has no such member",
	"NO_PTR_STRCT":      "only pointers to structures and unions have members, and inside of a function structures that lie in memory",
	"NO_RETVAL":         "leave $retval out",
	"RETVAL_ON_PROBE":   "$retval exists at returns only: add -ret, or name the function as SPEC%return",
	"USED_ARG_NAME":     "give it another name: NAME=…",
	"EXPECT_DIGIT":      "it is compared with a number",
	"EXPECT_STRING":     "it is compared with a text in quotes: s == \"abc\"",
	"ILLEGAL_FIELD_OP":  "numbers are compared with == != < <= > >= &, texts with == != ~",
	"ILLEGAL_INTVAL":    "a number is written 10, 0x1f, -1 or with a unit, 1.5ms, 4K (ns us ms s K M G); one without a sign is not negative",
	"INVALID_FILTER":    "a condition is NAME OP VALUE: n > 5 && path ~ \"/etc/*\"",
	"INVALID_OP":        "operators are == != < <= > >= & and, for texts, ~",
	"TOO_MANY_OPS":      "there are at most 14 steps from one address to the next",
	"ARG_TOO_LONG":      "an argument has at most 63 bytes",
	"ARG_NAME_TOO_LONG": "a name has at most 32 bytes",
}

// Advice returns the line of advice for e, or "" if there is none.
func (e *caretError) Advice() string {
	if e.err.Note != "" {
		return "  " + escape.Line(e.err.Note) + "\n"
	}
	if known := e.err.Known; len(known) > 0 {
		return "  " + e.there(known) + "\n"
	}
	if text, ok := advice[e.err.ID]; ok {
		return "  " + text + "\n"
	}
	return ""
}

// there tells which names there are, where one was not found, and which of them may be meant.
func (e *caretError) there(known []string) string {
	const most = 20
	known = slices.DeleteFunc(slices.Clone(known), func(name string) bool { return name == "" })
	meant := ""
	if word := nameAt(e.err.Command, e.err.Column); !slices.Contains(known, word) {
		meant = strings.Trim(nearName(known, word), " ()") + " "
	}
	more := ""
	if n := len(known) - most; n > 0 {
		known, more = known[:most], fmt.Sprintf(" and %d more", n)
	}
	return escape.Line(strings.TrimLeft(meant, " ")+"there are "+strings.Join(known, ", ")) + more
}

// nameAt is the name in text that stands at a column, or behind the dot or arrow there.
func nameAt(text string, column int) string {
	isLetter := func(c byte) bool {
		return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
	}
	column = min(column, len(text))
	for column < len(text) && !isLetter(text[column]) {
		column++
	}
	end := column
	for end < len(text) && isLetter(text[end]) {
		end++
	}
	return text[column:end]
}

// badDuration matches the flag package's message about a value that is not a duration, such
// as one without a unit. It captures the value and the flag.
var badDuration = regexp.MustCompile(`^invalid value "(.*)" for flag (-\S+): parse error`)

// isTime reports whether text is a badDuration message about a flag that takes a duration:
// flags of other types have messages that begin alike.
func isTime(c *cli.Context, text string) bool {
	m := badDuration.FindStringSubmatch(text)
	return m != nil && slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool {
		_, ok := f.(*cli.DurationFlag)
		return ok && slices.Contains(f.Names(), strings.TrimLeft(m[2], "-"))
	})
}

// unitOf turns a badDuration message into a sentence that says which units there are. It
// returns "" if the value is wrong for another reason than a missing unit.
func unitOf(text string) string {
	m := badDuration.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	value := strings.TrimSpace(m[1])
	if _, err := time.ParseDuration(value + "s"); err != nil {
		return ""
	}
	return m[2] + " " + value + " has no unit: write " + m[2] + " " + value + "s for seconds, or ms, m, h"
}
