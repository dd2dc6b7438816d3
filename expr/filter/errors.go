package filter

import (
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// The kernel's errors (ERRORS in trace_events_filter.c).
var texts = map[string]string{
	"INVALID_OP":          "Invalid operator",
	"TOO_MANY_OPEN":       "Too many '('",
	"TOO_MANY_CLOSE":      "Too few '('",
	"MISSING_QUOTE":       "Missing matching quote",
	"MISSING_BRACE_OPEN":  "Missing '{'",
	"MISSING_BRACE_CLOSE": "Missing '}'",
	"OPERAND_TOO_LONG":    "Operand too long",
	"EXPECT_STRING":       "Expecting string field",
	"EXPECT_DIGIT":        "Expecting numeric field",
	"ILLEGAL_FIELD_OP":    "Illegal operation for field type",
	"FIELD_NOT_FOUND":     "Field not found",
	"ILLEGAL_INTVAL":      "Illegal integer value",
	"TOO_MANY_PREDS":      "Too many terms in predicate expression",
	"INVALID_FILTER":      "Meaningless filter expression",
	"INVALID_CPULIST":     "Invalid cpulist",
	"INVALID_VALUE":       "Invalid value (did you forget quotes)?",
	"NO_FUNCTION":         "Function not found",
	"NEEDS_BRACES":        "Put braces around the operations, whose order is another one in other languages",
	"TYPES_DIFFER":        "The types differ, and the language does not compare or join them",
	"TYPE_UNKNOWN":        "Only each hit tells the type of this value: compare it with a number, a text or a variable",
	"NO_FILTER":           "No filter found",
}

// fail is the error id at a column of text.
func fail(text, id string, column int) *caret.Error {
	return &caret.Error{
		System: "event filter parse error", ID: id, Text: texts[id],
		Command: text, Column: min(column, len(text)), Errno: syscall.EINVAL,
	}
}
