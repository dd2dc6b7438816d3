package trigger

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// FuzzTable does commands on two events, by lines in turn, with hits of both after each: nothing panics, what is
// listed is no more than was written, and when both events are gone nothing is in soft mode.
func FuzzTable(f *testing.F) {
	f.Add("hist:keys=common_pid:ts=common_timestamp\nhist:keys=common_pid:d=common_timestamp-$ts:vals=$d:onmatch(sys.in).latency($d,name)\n" +
		"enable_hist:sys:out\nhist:keys=common_pid:d=common_timestamp-$ts:vals=$d:onmatch(sys.in).latency($d,name):pause\n\n!hist:keys=name")
	f.Add("hist:name=n:keys=delta:x=bytes_req:onmax($x).snapshot()\nhist:name=n:keys=delta:x=bytes_req:onmax($x).snapshot()\n" +
		"enable_event:sys:out:2\ndisable_event:sys:in if delta < 0\n!enable_event:sys:out\nstacktrace:1")
	f.Fuzz(func(t *testing.T, commands string) {
		h, in, out := world()
		h.again = in
		sets, written := []*Set{in, out}, 0
		for command := range strings.Lines(commands) {
			s := sets[written%2]
			written++
			_ = s.Write(command)
			for i := range sets {
				one := request(i, "comm", 0x1000, uint64(written), int64(i)-1, "name")
				hit(sets[i], one)
				hit(sets[i], &Hit{Values: make([]fetch.Value, len(alloc.Fields))})
			}
			for _, s := range sets {
				if err := s.Print(&strings.Builder{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			h.log = h.log[:0]
		}
		if in.Len()+out.Len() > written {
			t.Errorf("%d commands, %s%s", written, in, out)
		}
		in.Close()
		out.Close()
		if len(in.table.soft) != 0 {
			t.Errorf("in soft mode: %v", in.table.soft)
		}
	})
}
