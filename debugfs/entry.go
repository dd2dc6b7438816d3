package debugfs

import (
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// entry is a line of the trace, or several: they are made when they are read.
type entry struct {
	comm   string
	tid    int
	cpu    int
	when   time.Duration // since boot
	event  *event
	values []fetch.Value // of the event's addresses and arguments
	stack  []string      // of a stacktrace trigger: then there is nothing else
}

// size is about the bytes of memory that e occupies.
func (e *entry) size() int {
	n := int(unsafe.Sizeof(*e)) + len(e.comm)
	for _, v := range e.values {
		n += sizeOf(v)
	}
	for _, s := range e.stack {
		n += len(s)
	}
	return n
}

func sizeOf(v fetch.Value) int {
	n := int(unsafe.Sizeof(v)) + len(v.S)
	for _, e := range v.Elems {
		n += sizeOf(e)
	}
	return n
}

// appendTo appends e's lines (kernel/trace/trace_output.c, trace_print_context).
func (e *entry) appendTo(b []byte) []byte {
	us := e.when.Microseconds()
	b = fmt.Appendf(b, "%16s-%-7d [%03d] ..... %5d.%06d: ", escape.Line(e.comm), e.tid, e.cpu, us/1e6, us%1e6)
	if e.event == nil {
		b = append(b, "<stack trace>\n"...)
		for _, s := range e.stack {
			b = fmt.Appendf(b, " => %s\n", escape.Line(s))
		}
		return b
	}
	body := e.event.appendBody(nil, e) // whose values may hold anything, even what looks like another line
	return append(escape.Append(b, string(body)), '\n')
}

// header is the beginning of the trace file.
func header(in, written uint64, processors int) string {
	counts := fmt.Sprintf("# entries-in-buffer/entries-written: %d/%d   #P:%d\n", in, written, processors)
	return "# tracer: nop\n#\n" + counts + strings.TrimPrefix(columns, "\n")
}

const columns = `
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
`
