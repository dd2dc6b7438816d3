package caret

import (
	"errors"
	"syscall"
	"testing"
)

func TestAnErrorIsItsErrno(t *testing.T) {
	err := error(&Error{System: "trace_kprobe", ID: "BAD_REG_NAME", Text: "Invalid register name", Errno: syscall.EINVAL})
	if !errors.Is(err, syscall.EINVAL) || err.Error() != "trace_kprobe: Invalid register name (BAD_REG_NAME)" {
		t.Errorf("%v", err)
	}
}
