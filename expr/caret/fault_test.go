package caret

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// names are the errors of the kernel's table, in its order.
const names = `FILE_NOT_FOUND NO_REGULAR_FILE BAD_REFCNT REFCNT_OPEN_BRACE BAD_REFCNT_SUFFIX BAD_UPROBE_OFFS BAD_MAXACT_TYPE
BAD_MAXACT MAXACT_TOO_BIG BAD_PROBE_ADDR NON_UNIQ_SYMBOL BAD_RETPROBE NO_TRACEPOINT BAD_TP_NAME BAD_ADDR_SUFFIX
NO_GROUP_NAME GROUP_TOO_LONG BAD_GROUP_NAME NO_EVENT_NAME EVENT_TOO_LONG BAD_EVENT_NAME EVENT_EXIST
RETVAL_ON_PROBE NO_RETVAL BAD_STACK_NUM BAD_ARG_NUM BAD_VAR BAD_REG_NAME BAD_MEM_ADDR BAD_IMM IMMSTR_NO_CLOSE
FILE_ON_KPROBE BAD_FILE_OFFS SYM_ON_UPROBE TOO_MANY_OPS DEREF_NEED_BRACE BAD_DEREF_OFFS DEREF_OPEN_BRACE
COMM_CANT_DEREF BAD_FETCH_ARG ARRAY_NO_CLOSE BAD_ARRAY_SUFFIX BAD_ARRAY_NUM ARRAY_TOO_BIG BAD_TYPE BAD_STRING
BAD_SYMSTRING BAD_BITFIELD ARG_NAME_TOO_LONG NO_ARG_NAME BAD_ARG_NAME USED_ARG_NAME ARG_TOO_LONG NO_ARG_BODY
BAD_INSN_BNDRY FAIL_REG_PROBE DIFF_PROBE_TYPE DIFF_ARG_TYPE SAME_PROBE NO_EVENT_INFO BAD_ATTACH_EVENT
BAD_ATTACH_ARG NO_EP_FILTER NOSUP_BTFARG NO_BTFARG NO_BTF_ENTRY BAD_VAR_ARGS NOFENTRY_ARGS DOUBLE_ARGS
ARGS_2LONG ARGIDX_2BIG NO_PTR_STRCT NOSUP_DAT_ARG BAD_HYPHEN NO_BTF_FIELD BAD_BTF_TID BAD_TYPE4STR
NEED_STRING_TYPE TOO_MANY_ARGS TOO_MANY_EARGS`

func TestEveryErrorOfTheKernelHasItsSentence(t *testing.T) {
	all := strings.Fields(names)
	if len(sentences) != len(all) {
		t.Errorf("%d sentences for %d names", len(sentences), len(all))
	}
	for _, id := range all {
		if sentences[id].text == "" {
			t.Errorf("%s has no text", id)
		}
	}
}

func TestAFaultKnowsItsPlaceInACommand(t *testing.T) {
	words := []string{"p", "vfs_read", "a=%zz"}
	for _, c := range []struct {
		fault  *Fault
		word   int
		column int
		errno  syscall.Errno
	}{
		{At("BAD_REG_NAME", 2), 2, 13, syscall.EINVAL},
		{At("BAD_PROBE_ADDR", 0), 1, 2, syscall.EINVAL},
		{At("NO_BTFARG", 0), 0, 0, syscall.ENOENT},
		{&Fault{ID: "BAD_PROBE_ADDR", Errno: syscall.ENOENT}, 1, 2, syscall.ENOENT},
		{At("DIFF_ARG_TYPE", 0), 3, 17, syscall.EEXIST}, // the command's end
	} {
		e := c.fault.In("trace_kprobe", words, c.word)
		if e.Command != "p vfs_read a=%zz" || e.Column != c.column || e.ID != c.fault.ID || e.Text == "" || !errors.Is(e, c.errno) {
			t.Errorf("%+v is %+v", c.fault, e)
		}
	}
}
