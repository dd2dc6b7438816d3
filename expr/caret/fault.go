package caret

import (
	"strings"
	"syscall"
)

// sentence is an error of the kernel's table (kernel/trace/trace_probe.h, ERRORS).
type sentence struct {
	text  string
	errno syscall.Errno // 0: EINVAL
}

var sentences = map[string]sentence{
	"FILE_NOT_FOUND":    {"Failed to find the given file", syscall.ENOENT},
	"NO_REGULAR_FILE":   {"Not a regular file", 0},
	"BAD_REFCNT":        {"Invalid reference counter offset", 0},
	"REFCNT_OPEN_BRACE": {"Reference counter brace is not closed", 0},
	"BAD_REFCNT_SUFFIX": {"Reference counter has wrong suffix", 0},
	"BAD_UPROBE_OFFS":   {"Invalid uprobe offset", 0},
	"BAD_MAXACT_TYPE":   {"Maxactive is only for function exit", 0},
	"BAD_MAXACT":        {"Invalid maxactive number", 0},
	"MAXACT_TOO_BIG":    {"Maxactive is too big", 0},
	"BAD_PROBE_ADDR":    {"Invalid probed address or symbol", 0},
	"NON_UNIQ_SYMBOL":   {"The symbol is not unique", syscall.EADDRNOTAVAIL},
	"BAD_RETPROBE":      {"Retprobe address must be an function entry", 0},
	"NO_TRACEPOINT":     {"Tracepoint is not found", syscall.ENOENT},
	"BAD_TP_NAME":       {"Invalid character in tracepoint name", 0},
	"BAD_ADDR_SUFFIX":   {"Invalid probed address suffix", 0},
	"NO_GROUP_NAME":     {"Group name is not specified", 0},
	"GROUP_TOO_LONG":    {"Group name is too long", 0},
	"BAD_GROUP_NAME":    {"Group name must follow the same rules as C identifiers", 0},
	"NO_EVENT_NAME":     {"Event name is not specified", 0},
	"EVENT_TOO_LONG":    {"Event name is too long", 0},
	"BAD_EVENT_NAME":    {"Event name must follow the same rules as C identifiers", 0},
	"EVENT_EXIST":       {"Given group/event name is already used by another event", syscall.EEXIST},
	"RETVAL_ON_PROBE":   {"$retval is not available on probe", 0},
	"NO_RETVAL":         {"This function returns 'void' type", syscall.ENOENT},
	"BAD_STACK_NUM":     {"Invalid stack number", 0},
	"BAD_ARG_NUM":       {"Invalid argument number", 0},
	"BAD_VAR":           {"Invalid $-variable specified", 0},
	"BAD_REG_NAME":      {"Invalid register name", 0},
	"BAD_MEM_ADDR":      {"Invalid memory address", 0},
	"BAD_IMM":           {"Invalid immediate value", 0},
	"IMMSTR_NO_CLOSE":   {`String is not closed with '"'`, 0},
	"FILE_ON_KPROBE":    {"File offset is not available with kprobe", 0},
	"BAD_FILE_OFFS":     {"Invalid file offset value", 0},
	"SYM_ON_UPROBE":     {"Symbol is not available with uprobe", 0},
	"TOO_MANY_OPS":      {"Dereference is too much nested", 0},
	"DEREF_NEED_BRACE":  {"Dereference needs a brace", 0},
	"BAD_DEREF_OFFS":    {"Invalid dereference offset", 0},
	"DEREF_OPEN_BRACE":  {"Dereference brace is not closed", 0},
	"COMM_CANT_DEREF":   {"$comm can not be dereferenced", 0},
	"BAD_FETCH_ARG":     {"Invalid fetch argument", 0},
	"ARRAY_NO_CLOSE":    {"Array is not closed", 0},
	"BAD_ARRAY_SUFFIX":  {"Array has wrong suffix", 0},
	"BAD_ARRAY_NUM":     {"Invalid array size", 0},
	"ARRAY_TOO_BIG":     {"Array number is too big", 0},
	"BAD_TYPE":          {"Unknown type is specified", 0},
	"BAD_STRING":        {"String accepts only memory argument", 0},
	"BAD_SYMSTRING":     {"Symbol String doesn't accept data/userdata", 0},
	"BAD_BITFIELD":      {"Invalid bitfield", 0},
	"ARG_NAME_TOO_LONG": {"Argument name is too long", 0},
	"NO_ARG_NAME":       {"Argument name is not specified", 0},
	"BAD_ARG_NAME":      {"Argument name must follow the same rules as C identifiers", 0},
	"USED_ARG_NAME":     {"This argument name is already used", 0},
	"ARG_TOO_LONG":      {"Argument expression is too long", syscall.E2BIG},
	"NO_ARG_BODY":       {"No argument expression", 0},
	"BAD_INSN_BNDRY":    {"Probe point is not an instruction boundary", syscall.EILSEQ},
	"FAIL_REG_PROBE":    {"Failed to register probe event", 0},
	"DIFF_PROBE_TYPE":   {"Probe type is different from existing probe", syscall.EEXIST},
	"DIFF_ARG_TYPE":     {"Argument type or name is different from existing probe", syscall.EEXIST},
	"SAME_PROBE":        {"There is already the exact same probe event", syscall.EEXIST},
	"NO_EVENT_INFO":     {"This requires both group and event name to attach", 0},
	"BAD_ATTACH_EVENT":  {"Attached event does not exist", 0},
	"BAD_ATTACH_ARG":    {"Attached event does not have this field", 0},
	"NO_EP_FILTER":      {"No filter rule after 'if'", 0},
	"NOSUP_BTFARG":      {"BTF is not available or not supported", syscall.EOPNOTSUPP},
	"NO_BTFARG":         {"This variable is not found at this probe point", syscall.ENOENT},
	"NO_BTF_ENTRY":      {"No BTF entry for this probe point", syscall.ENOENT},
	"BAD_VAR_ARGS":      {"$arg* must be an independent parameter without name etc.", 0},
	"NOFENTRY_ARGS":     {"$arg* can be used only on function entry or exit", 0},
	"DOUBLE_ARGS":       {"$arg* can be used only once in the parameters", 0},
	"ARGS_2LONG":        {"$arg* failed because the argument list is too long", syscall.E2BIG},
	"ARGIDX_2BIG":       {"$argN index is too big", 0},
	"NO_PTR_STRCT":      {"This is not a pointer to union/structure.", 0},
	"NOSUP_DAT_ARG":     {"Non pointer structure/union argument is not supported.", syscall.EOPNOTSUPP},
	"BAD_HYPHEN":        {"Failed to parse single hyphen. Forgot '>'?", 0},
	"NO_BTF_FIELD":      {"This field is not found.", syscall.ENOENT},
	"BAD_BTF_TID":       {"Failed to get BTF type info.", 0},
	"BAD_TYPE4STR":      {"This type does not fit for string.", 0},
	"NEED_STRING_TYPE":  {"$comm and immediate-string only accepts string type", 0},
	"TOO_MANY_ARGS":     {"Too many arguments are specified", syscall.E2BIG},
	"TOO_MANY_EARGS":    {"Too many entry arguments specified", 0},
}

// pathSentences are errors about paths, which the kernel's arguments have not.
var pathSentences = map[string]sentence{
	"BAD_PATH":      {"Invalid name of a value: it is NAME, x.member, x->member, x[3], x[0:3], x[\"key\"], x.(TYPE), *x, &x, (TYPE *)x or len(x)", 0},
	"PATH_NO_CLOSE": {"A brace or bracket is not closed", 0},
	"BAD_INDEX":     {"Invalid index: it is a number, a variable, or a sum of these; or of a map a text in quotes, true or false", 0},
	"BAD_RANGE":     {"Invalid range: x[2:5] is the elements 2, 3 and 4", 0},
	"RANGE_TYPE":    {"A range has no other type; of the first element there is TYPE[N]: x[2]:u8[3]", 0},
	"NO_GLOBAL":     {"There is no such variable outside of functions that is known there", syscall.ENOENT},
	"NO_INDEX":      {"The index is not known here, or is no whole number", syscall.ENOENT},
	"NO_ELEMENT":    {"There is no such element", syscall.ENOENT},
	"BAD_KEY":       {"The map has other keys: they are texts in quotes, numbers, or true and false, as its type says", 0},
	"NO_INTERFACE":  {"This is no interface of Go's, which alone may hold one type or another", 0},
	"NO_TYPE":       {"Debug information has no type of this name, or several that differ", syscall.ENOENT},
	"NO_LENGTH":     {"This has no length", 0},
	"SOME_BITS":     {"This is some of a register's bits, and can't have another type", 0},
	"NO_ADDRESS":    {"This has no address: it is in a register, or a bit field", 0},
}

// Fault is a mistake in a word, before its command, and its place in that, are known.
type Fault struct {
	ID     string        // an error of the kernel's table for probes, or one of pathSentences
	Column int           // in the word
	Errno  syscall.Errno // 0: that of the table
	Known  []string      // as in Error
	Note   string        // as in Error
}

// At is a fault at a column of a word, with the errno of the table.
func At(id string, column int) *Fault { return &Fault{ID: id, Column: column} }

// In makes the error of a fault in word number w of a command; behind the last word its column is the command's end.
func (f *Fault) In(system string, words []string, w int) *Error {
	s, known := sentences[f.ID]
	if !known {
		s = pathSentences[f.ID]
	}
	e := &Error{System: system, ID: f.ID, Text: s.text, Command: strings.Join(words, " "), Errno: f.Errno, Known: f.Known, Note: f.Note}
	if e.Errno == 0 {
		e.Errno = s.errno
	}
	if e.Errno == 0 {
		e.Errno = syscall.EINVAL
	}
	e.Column = len(e.Command) + 1
	if w < len(words) {
		e.Column = f.Column + w
		for _, word := range words[:w] {
			e.Column += len(word)
		}
	}
	return e
}
