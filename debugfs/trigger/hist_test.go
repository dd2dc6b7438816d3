package trigger

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// request is a hit of alloc.
func request(pid int, comm string, site, bytes uint64, delta int64, name string) *Hit {
	return &Hit{PID: pid, Comm: comm, CPU: pid % 4, Time: time.Duration(bytes) * time.Microsecond,
		Values: []fetch.Value{{U: uint64(pid)}, {U: site}, {U: bytes}, {U: bytes + 8}, {U: uint64(delta)}, {S: name}, {}},
		Stack:  func() []uint64 { return []uint64{site, site + 16} },
	}
}

func histogram(t *testing.T, command string, hits ...*Hit) string {
	t.Helper()
	tr, err := Parse(command, alloc)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHist(tr.Hist)
	for _, hit := range hits {
		h.Add(hit)
	}
	return shown(t, h, tr)
}

// shown is the hist file, without the lines around the entries.
func shown(t *testing.T, h *Hist, tr *Trigger) string {
	t.Helper()
	var b strings.Builder
	symbols := func(addr uint64, offset bool) string {
		if offset {
			return fmt.Sprintf("f%x+0x%x/0x40", addr>>8, addr&0xff)
		}
		return fmt.Sprintf("f%x", addr>>8)
	}
	if err := h.Print(&b, tr.String(), symbols); err != nil {
		t.Fatal(err)
	}
	_, lines, ok := strings.Cut(b.String(), "# event histogram\n#\n# trigger info: "+tr.String()+"\n#\n\n")
	if !ok {
		t.Fatalf("begins with\n%s", b.String())
	}
	return lines
}

// four hits: two sites, three sizes, two threads.
func four() []*Hit {
	return []*Hit{
		request(10, "cat", 0x1104, 64, -1, "b"),
		request(11, "dog", 0x1104, 64, 5, "a"),
		request(10, "cat", 0x2208, 100, 3, "b"),
		request(10, "cat", 0x1104, 3000, -7, "b"),
	}
}

const fourTotals = "\nTotals:\n    Hits: 4\n    Entries: %d\n    Dropped: 0\n"

func TestHistogramsAreShownAsTheKernelDoes(t *testing.T) {
	for command, want := range map[string][]string{
		"hist:keys=bytes_req": {
			"{ bytes_req:        100 } hitcount:          1",
			"{ bytes_req:       3000 } hitcount:          1",
			"{ bytes_req:         64 } hitcount:          2",
		},
		"hist:keys=call_site:vals=bytes_req,bytes_alloc:sort=bytes_req.descending": {
			"{ call_site:       4356 } hitcount:          3  bytes_req:       3128  bytes_alloc:       3152",
			"{ call_site:       8712 } hitcount:          1  bytes_req:        100  bytes_alloc:        108",
		},
		"hist:keys=call_site.hex,name:vals=bytes_req.hex:sort=name": {
			fmt.Sprintf("{ call_site: 1104, name: %-50s } hitcount:          1  bytes_req:         40", "a"),
			fmt.Sprintf("{ call_site: 1104, name: %-50s } hitcount:          2  bytes_req:        bf8", "b"),
			fmt.Sprintf("{ call_site: 2208, name: %-50s } hitcount:          1  bytes_req:         64", "b"),
		},
		"hist:keys=call_site.sym": {
			fmt.Sprintf("{ call_site: [2208] %-45s } hitcount:          1", "f22"),
			fmt.Sprintf("{ call_site: [1104] %-45s } hitcount:          3", "f11"),
		},
		"hist:keys=call_site.sym-offset:sort=call_site": {
			fmt.Sprintf("{ call_site: [1104] %-55s } hitcount:          3", "f11+0x4/0x40"),
			fmt.Sprintf("{ call_site: [2208] %-55s } hitcount:          1", "f22+0x8/0x40"),
		},
		"hist:keys=common_pid.execname": {
			"{ common_pid: dog             [        11] } hitcount:          1",
			"{ common_pid: cat             [        10] } hitcount:          3",
		},
		"hist:keys=bytes_req.syscall:sort=bytes_req": {
			fmt.Sprintf("{ bytes_req: %-30s[ 64] } hitcount:          2", "sys_semget"),
			fmt.Sprintf("{ bytes_req: %-30s[100] } hitcount:          1", "sys_times"),
			fmt.Sprintf("{ bytes_req: %-30s[3000] } hitcount:          1", "unknown_syscall"),
		},
		"hist:keys=bytes_req.log2:sort=bytes_req": {
			"{ bytes_req: ~ 2^6  } hitcount:          2",
			"{ bytes_req: ~ 2^7  } hitcount:          1",
			"{ bytes_req: ~ 2^12 } hitcount:          1",
		},
		"hist:keys=bytes_req.buckets=100:sort=bytes_req": {
			"{ bytes_req: ~ 0-99 } hitcount:          2",
			"{ bytes_req: ~ 100-199 } hitcount:          1",
			"{ bytes_req: ~ 3000-3099 } hitcount:          1",
		},
		"hist:keys=delta:sort=delta": { // sorted as signed numbers, shown as the kernel shows them
			"{ delta: 18446744073709551609 } hitcount:          1",
			"{ delta: 18446744073709551615 } hitcount:          1",
			"{ delta:          3 } hitcount:          1",
			"{ delta:          5 } hitcount:          1",
		},
		"hist:keys=name:vals=hitcount.percent,bytes_req.graph:nohitcount:sort=name": {
			fmt.Sprintf("{ name: %-50s }  hitcount (%%):  25.00  bytes_req: %-20s", "a", ""),
			fmt.Sprintf("{ name: %-50s }  hitcount (%%):  75.00  bytes_req: %s", "b", strings.Repeat("#", 20)),
		},
		"hist:keys=bytes_alloc-bytes_req,common_cpu:vals=bytes_req*2,bytes_req:sort=common_cpu": {
			"{ bytes_alloc-bytes_req:          8, common_cpu:          2 } hitcount:          3  bytes_req:       3164",
			"{ bytes_alloc-bytes_req:          8, common_cpu:          3 } hitcount:          1  bytes_req:         64",
		},
		"hist:keys=stacktrace:vals=bytes_req": {
			"{ common_stacktrace:",
			"         f22+0x8/0x40",
			"         f22+0x18/0x40",
			"} hitcount:          1  bytes_req:        100",
			"{ common_stacktrace:",
			"         f11+0x4/0x40",
			"         f11+0x14/0x40",
			"} hitcount:          3  bytes_req:       3128",
		},
		"hist:keys=common_timestamp.usecs:sort=common_timestamp": {
			"{ common_timestamp:         64 } hitcount:          2",
			"{ common_timestamp:        100 } hitcount:          1",
			"{ common_timestamp:       3000 } hitcount:          1",
		},
		"hist:keys=name:x=bytes_req:onmax($x).save(call_site,common_pid.execname,delta):sort=name": {
			fmt.Sprintf("{ name: %-50s } hitcount:          1", "a"),
			fmt.Sprintf("\tmax:         64  call_site:       4356  common_pid.execname: %-32s  delta:          5", "dog"),
			fmt.Sprintf("{ name: %-50s } hitcount:          3", "b"),
			fmt.Sprintf("\tmax:       3000  call_site:       4356  common_pid.execname: %-32s  delta: 18446744073709551609", "cat"),
		},
		"hist:keys=call_site:x=bytes_req-60:onchange($x).save(name):sort=call_site": {
			"{ call_site:       4356 } hitcount:          3",
			fmt.Sprintf("\tchanged:       2940  name: %-32s", "b"),
			"{ call_site:       8712 } hitcount:          1",
			fmt.Sprintf("\tchanged:         40  name: %-32s", "b"),
		},
		"hist:keys=common_pid:a=delta+0:b=$a*2,c=$b-$a:vals=$c:sort=common_pid": {
			fmt.Sprintf("{ common_pid:         10 } hitcount:          3  c: %10d", uint64(1<<64-5)),
			"{ common_pid:         11 } hitcount:          1  c:          5",
		},
	} {
		entries := 0
		for _, line := range want {
			if strings.HasPrefix(line, "{") {
				entries++
			}
		}
		want := strings.Join(want, "\n") + "\n" + fmt.Sprintf(fourTotals, entries)
		if got := histogram(t, command, four()...); got != want {
			t.Errorf("%s shows\n%swant\n%s", command, got, want)
		}
	}
}

func TestNumbersOfExpressions(t *testing.T) {
	for expression, want := range map[string]uint64{
		"bytes_req/7":            14,
		"bytes_req/delta":        ^uint64(0), // the kernel's quotient of zero
		"bytes_req+8*2-1":        115,
		"-(bytes_req)":           ^uint64(99),
		"bytes_req-8/common_pid": 100,
		"$y+$y":                  202,
	} {
		got := histogram(t, "hist:keys=name:y=bytes_req+1:x="+expression+":vals=$x", request(10, "", 1, 100, 0, ""))
		if line := fmt.Sprintf("  x: %10d\n", want); !strings.Contains(got, line) {
			t.Errorf("%s: want%sgot\n%s", expression, line, got)
		}
	}
}

func TestFullHistogramsDropNewKeys(t *testing.T) {
	var hits []*Hit
	for i := range 300 {
		hits = append(hits, request(i%150, "", 0, 0, 0, ""))
	}
	got := histogram(t, "hist:keys=common_pid:size=128", hits...)
	if want := "\nTotals:\n    Hits: 256\n    Entries: 128\n    Dropped: 44\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s", got[max(0, len(got)-200):])
	}
}

func TestTotalsOfAnEmptyHistogram(t *testing.T) {
	if got, want := histogram(t, "hist:keys=name"), "\nTotals:\n    Hits: 0\n    Entries: 0\n    Dropped: 0\n"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestKeysDoNotRunIntoEachOther(t *testing.T) {
	two := Event{System: "a", Name: "b", Fields: []fetch.Field{{Name: "x", Type: text}, {Name: "y", Type: text}}}
	tr, err := Parse("hist:keys=x,y", two)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHist(tr.Hist)
	for _, v := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"ab", "c"}} {
		h.Add(&Hit{Values: []fetch.Value{{S: v[0]}, {S: v[1]}}})
	}
	if got := shown(t, h, tr); !strings.Contains(got, "Hits: 4\n    Entries: 3\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestStringsThatCouldNotBeRead(t *testing.T) {
	hit := request(1, "", 0, 0, 0, "")
	hit.Values[5] = fetch.Value{Fault: true}
	if got := histogram(t, "hist:keys=name", hit); !strings.HasPrefix(got, "{ name: (fault)  ") {
		t.Errorf("got\n%s", got)
	}
}

// TestSnapshotsOfTheGreatest: onmax asks for a snapshot when a value is the greatest of all entries.
func TestSnapshotsOfTheGreatest(t *testing.T) {
	tr, err := Parse("hist:keys=name:x=bytes_req:onmax($x).snapshot()", alloc)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHist(tr.Hist)
	var asked []bool
	for _, hit := range four() {
		asked = append(asked, h.Add(hit))
	}
	if want := []bool{true, false, true, true}; !slices.Equal(asked, want) {
		t.Errorf("snapshots %v, want %v", asked, want)
	}
	want := "\nSnapshot taken (see tracing/snapshot).  Details:\n\ttriggering value { onmax($x) }:       3000" +
		fmt.Sprintf("\ttriggered by event with key: { name: %-50s }\n\nTotals:", "b")
	if got := shown(t, h, tr); !strings.Contains(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestHitsOfManyThreads(t *testing.T) {
	tr, err := Parse("hist:keys=common_pid:x=bytes_req:vals=bytes_req:onmax($x).save(name)", alloc)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHist(tr.Hist)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				h.Add(request(i%10, "", 0, 2, 0, ""))
				if i%100 == 0 {
					shown(t, h, tr)
				}
			}
		})
	}
	all.Wait()
	got := shown(t, h, tr)
	if strings.Count(got, "hitcount:        400  bytes_req:        800\n") != 10 || !strings.Contains(got, "Hits: 4000\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestHitsDoNotWaitForReaders: symbols are looked up with the histogram free.
func TestHitsDoNotWaitForReaders(t *testing.T) {
	tr, err := Parse("hist:keys=call_site.sym:x=bytes_req:onmax($x).save(name)", alloc)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHist(tr.Hist)
	h.Add(four()[0])
	var b strings.Builder
	err = h.Print(&b, "", func(uint64, bool) string {
		h.Add(four()[3])
		return "f"
	})
	if got := b.String(); err != nil || !strings.Contains(got, "Hits: 1\n") || !strings.Contains(got, "max:         64") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestSyscallNames(t *testing.T) {
	for n, want := range map[uint64]string{0: "sys_read", 1: "sys_write", 59: "sys_execve", 231: "sys_exit_group",
		334: "sys_rseq", 336: "unknown_syscall", 423: "unknown_syscall", 424: "sys_pidfd_send_signal",
		435: "sys_clone3", 1 << 63: "unknown_syscall"} {
		if got := SyscallName(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
