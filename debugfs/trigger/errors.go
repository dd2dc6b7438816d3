package trigger

import (
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// histErrors are the kernel's sentences for what is wrong with a hist command.
var histErrors = map[string]string{
	"DUPLICATE_VAR":         "Variable already defined",
	"VAR_NOT_UNIQUE":        "Variable name not unique, need to use fully qualified name (subsys.event.var) for variable",
	"TOO_MANY_VARS":         "Too many variables defined",
	"MALFORMED_ASSIGNMENT":  "Malformed assignment",
	"NAMED_MISMATCH":        "Named hist trigger doesn't match existing named trigger (includes variables)",
	"TRIGGER_EEXIST":        "Hist trigger already exists",
	"TRIGGER_ENOENT_CLEAR":  "Can't clear or continue a nonexistent hist trigger",
	"SET_CLOCK_FAIL":        "Couldn't set trace_clock",
	"BAD_FIELD_MODIFIER":    "Invalid field modifier",
	"TOO_MANY_SUBEXPR":      "Too many subexpressions (3 max)",
	"TIMESTAMP_MISMATCH":    "Timestamp units in expression don't match",
	"TOO_MANY_FIELD_VARS":   "Too many field variables defined",
	"INVALID_SUBSYS_EVENT":  "Invalid subsystem or event name",
	"SYNTH_EVENT_NOT_FOUND": "Couldn't find synthetic event",
	"SYNTH_TYPE_MISMATCH":   "Param type doesn't match synthetic event field type",
	"SYNTH_COUNT_MISMATCH":  "Param count doesn't match synthetic event field count",
	"PARAM_NOT_FOUND":       "Couldn't find param",
	"ONX_NOT_VAR":           "For onmax(x) or onchange(x), x must be a variable",
	"ONX_VAR_NOT_FOUND":     "Couldn't find onmax or onchange variable",
	"ONX_VAR_CREATE_FAIL":   "Couldn't create onmax or onchange variable",
	"FIELD_VAR_CREATE_FAIL": "Couldn't create field variable",
	"TOO_MANY_PARAMS":       "Too many action params",
	"INVALID_PARAM":         "Invalid action param",
	"ACTION_NOT_FOUND":      "No action found",
	"NO_SAVE_PARAMS":        "No params found for save()",
	"TOO_MANY_SAVE_ACTIONS": "Can't have more than one save() action per hist",
	"ACTION_MISMATCH":       "Handler doesn't support action",
	"NO_CLOSING_PAREN":      "No closing paren found",
	"SUBSYS_NOT_FOUND":      "Missing subsystem",
	"INVALID_REF_KEY":       "Using variable references in keys not supported",
	"VAR_NOT_FOUND":         "Couldn't find variable",
	"FIELD_NOT_FOUND":       "Couldn't find field",
	"EMPTY_ASSIGNMENT":      "Empty assignment",
	"INVALID_SORT_MODIFIER": "Invalid sort modifier",
	"EMPTY_SORT_FIELD":      "Empty sort field",
	"TOO_MANY_SORT_FIELDS":  "Too many sort fields (Max = 2)",
	"INVALID_SORT_FIELD":    "Sort field must be a key or a val",
	"INVALID_STR_OPERAND":   "String type can not be an operand in expression",
	"EXPECT_NUMBER":         "Expecting numeric literal",
	"UNARY_MINUS_SUBEXPR":   "Unary minus not supported in sub-expressions",
	"DIVISION_BY_ZERO":      "Division by zero",
	"NEED_NOHC_VAL":         "Non-hitcount value is required for 'nohitcount'",
}

// ownErrors are sentences for what the kernel refuses without a word.
var ownErrors = map[string]string{
	"TRIGGER_TOO_LONG": "Command too long",
	"UNKNOWN_TRIGGER":  "Unknown trigger",
	"NO_TARGET":        "Expecting SYSTEM:EVENT",
	"TARGET_NOT_FOUND": "Couldn't find event to enable or disable",
	"BAD_COUNT":        "Count must be a number",
	"NO_IF":            "Expecting 'if' and a filter",
	"EXISTS":           "Trigger already exists",
	"VAR_IN_USE":       "Other hist triggers refer to its variables",
	"NO_KEYS":          "A hist trigger needs keys=",
	"TOO_MANY_KEYS":    "Too many keys (3 max)",
	"TOO_MANY_VALS":    "Too many values (2 max, beside hitcount)",
	"TOO_MANY_ACTIONS": "Too many actions (8 max)",
	"BAD_SIZE":         "Size must be a number from 65 to 131072",
	"UNKNOWN_ATTR":     "Unknown attribute or handler",
	"BAD_EXPRESSION":   "Operator without operand or paren",
	"ARRAY_FIELD":      "Arrays can be neither keys nor values",
}

// errnos are those that are not EINVAL.
var errnos = map[string]syscall.Errno{
	"DIVISION_BY_ZERO":      syscall.EDOM,
	"TRIGGER_EEXIST":        syscall.EEXIST,
	"TOO_MANY_SAVE_ACTIONS": syscall.EEXIST,
	"EXISTS":                syscall.EEXIST,
	"TRIGGER_ENOENT_CLEAR":  syscall.ENOENT,
	"NEED_NOHC_VAL":         syscall.ENOENT,
	"VAR_IN_USE":            syscall.EBUSY,
}

// complain is the error id of a command; its caret stands where the text at begins in it, as the
// kernel finds it again (err_pos: the first place with that text, else the beginning).
func complain(e Event, command, id, at string) error {
	text, own := ownErrors[id]
	system := "event trigger"
	if !own {
		text = histErrors[id]
	}
	if strings.HasPrefix(command, histPrefix) {
		system = histPrefix + e.System + ":" + e.Name
	}
	errno, ok := errnos[id]
	if !ok {
		errno = syscall.EINVAL
	}
	return &caret.Error{System: system, ID: id, Text: text, Command: command,
		Column: max(0, strings.Index(command, at)), Errno: errno}
}
