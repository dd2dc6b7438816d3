package procfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestParseMapsReadsEveryFormOfLine(t *testing.T) {
	tests := []struct {
		name, line string
		want       Mapping
	}{
		{"text of an executable",
			"55d0c1a00000-55d0c1a01000 r-xp 00001000 fe:00 1234567                    /usr/bin/cat",
			Mapping{Range: arch.Range{Start: 0x55d0c1a00000, End: 0x55d0c1a01000}, Read: true, Exec: true, Offset: 0x1000, Dev: "fe:00", Inode: 1234567, Path: "/usr/bin/cat"}},
		{"anonymous memory has no path",
			"7f0000000000-7f0000021000 rw-p 00000000 00:00 0 ",
			Mapping{Range: arch.Range{Start: 0x7f0000000000, End: 0x7f0000021000}, Read: true, Write: true, Dev: "00:00"}},
		{"vsyscall ends at the top of memory",
			"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Mapping{Range: arch.Range{Start: 0xffffffffff600000, End: 0xffffffffff601000}, Exec: true, Dev: "00:00", Path: "[vsyscall]"}},
		{"deleted shared memory file",
			"7f1000000000-7f1000001000 r-xs 00000000 00:01 42                         /memfd:gokprobe (deleted)",
			Mapping{Range: arch.Range{Start: 0x7f1000000000, End: 0x7f1000001000}, Read: true, Exec: true, Shared: true, Dev: "00:01", Inode: 42, Path: "/memfd:gokprobe", Deleted: true}},
		{"path with spaces, a newline and a backslash",
			`1000-2000 r--p 00000000 08:01 7                          /a  b\012c\x`,
			Mapping{Range: arch.Range{Start: 0x1000, End: 0x2000}, Read: true, Dev: "08:01", Inode: 7, Path: "/a  b\nc\\x"}},
	}
	var all strings.Builder
	for _, tt := range tests {
		got, err := ParseMaps(strings.NewReader(tt.line + "\n"))
		if err != nil || len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: got %+v, %v\nwant %+v", tt.name, got, err, tt.want)
		}
		all.WriteString(tt.line + "\n")
	}
	got, err := ParseMaps(strings.NewReader(all.String()))
	if err != nil || len(got) != len(tests) {
		t.Errorf("all lines together: %d mappings, %v; want %d", len(got), err, len(tests))
	}
}

func TestParseMapsRefusesWhatIsNoMapping(t *testing.T) {
	for _, line := range []string{
		"x", "1000 r-xp 0 0:0 0", "2000-1000 r-xp 0 0:0 0", "1000-1000 r-xp 0 0:0 0", "1000-2000 rx 0 0:0 0",
		"1000-2000 r-xp z 0:0 0", "1000-2000 r-xp 0 0:0 z", "1000-11112222333344445 r-xp 0 0:0 0",
	} {
		_, err := ParseMaps(strings.NewReader("1000-2000 r-xp 0 0:0 0\n" + line + "\n"))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v, want ErrFormat that names line 2", line, err)
		}
	}
}

const statusText = `Name:	a\\b\nc 
a line without a key
State:	t (tracing stop)
Tgid:	100
Ngid:	0
Pid:	101
PPid:	7
TracerPid:	99
Uid:	1	2	3	4
Gid:	5	6	7	8
Groups:	 
VmSize:	    3060 kB
Threads:	12
SigQ:	0/96365
SigPnd:	0000000000000001
ShdPnd:	8000000000000000
SigBlk:	0000000000000010
SigIgn:	0000000000001000
SigCgt:	0000000180000000
CapEff:	000001fffeffffff
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	3
x86_Thread_features:	shstk wrss 
x86_Thread_features_locked:	
`

func TestLongLinesHideNothing(t *testing.T) {
	groups := "Groups:\t" + strings.Repeat("1000000000 ", 65536) + "\n"
	s, err := ParseStatus(strings.NewReader(strings.Replace(statusText, "Groups:\t \n", groups, 1)))
	want, _ := ParseStatus(strings.NewReader(statusText))
	if err != nil || s != want {
		t.Errorf("%+v, %v\nwant %+v", s, err, want)
	}
	long := "1000-2000 r-xp 00000000 fe:00 7    /" + strings.Repeat("x", 1<<20) + "\n"
	next := "3000-4000 r-xp 00000000 fe:00 8    /y\n"
	m, err := ParseMaps(strings.NewReader(long + next))
	if err != nil || len(m) != 2 || m[0].Path != "" || m[0].Inode != 7 || m[1].Path != "/y" {
		t.Errorf("%+v, %v", m, err)
	}
}

// What a process decides is not read without end.
func TestMapsWithoutEnd(t *testing.T) {
	var few, many strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&few, "%x-%x r-xp 00000000 fe:00 %d    /%d/%s\n", i<<12+4096, i<<12+8192, i+1, i, strings.Repeat("x", 4000))
	}
	m, err := ParseMaps(strings.NewReader(few.String()))
	kept := 0
	for _, m := range m {
		kept += len(m.Path)
	}
	if err != nil || len(m) != 10000 || kept > mostNames || kept < mostNames/2 {
		t.Errorf("%d mappings with %d bytes of paths, %v", len(m), kept, err)
	}
	for i := range mostMappings + 1 {
		fmt.Fprintf(&many, "%x-%x r-xp 0 0:0 0\n", i<<12+4096, i<<12+8192)
	}
	if _, err := ParseMaps(strings.NewReader(many.String())); !errors.Is(err, ErrTooMuch) {
		t.Errorf("half a million mappings: %v", err)
	}
	if _, err := ParseMaps(strings.NewReader(strings.Repeat(few.String(), 2))); !errors.Is(err, ErrTooMuch) {
		t.Errorf("80 MB of paths: %v", err)
	}
}

func TestParseStatusReadsEveryField(t *testing.T) {
	want := Status{
		Name: "a\\b\nc ", State: 't', Tgid: 100, Pid: 101, PPid: 7, TracerPid: 99,
		UIDs: [4]int{1, 2, 3, 4}, GIDs: [4]int{5, 6, 7, 8}, Threads: 12,
		SigPnd: 1, ShdPnd: 1 << 63, SigBlk: 0x10, SigIgn: 0x1000, SigCgt: 0x180000000,
		CapEff: 0x1fffeffffff, NoNewPrivs: true, Seccomp: 2, SeccompFilters: 3, ShadowStack: true,
	}
	got, err := ParseStatus(strings.NewReader(statusText))
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if !got.SigBlk.Has(5) || got.SigBlk.Has(4) || !got.ShdPnd.Has(64) || got.ShdPnd.Has(0) || got.ShdPnd.Has(65) {
		t.Error("SigSet.Has: signal n must be bit n-1")
	}
}

func TestParseStatusKnowsKernelThreads(t *testing.T) {
	tests := []struct {
		name, text string
		want       bool
	}{
		{"the kernel says yes", "Pid:\t9\nPPid:\t2\nKthread:\t1\n", true},
		{"the kernel says no though there is no memory", "Pid:\t9\nPPid:\t2\nKthread:\t0\n", false},
		{"older kernel, child of kthreadd", "State:\tS (sleeping)\nPid:\t9\nPPid:\t2\n", true},
		{"older kernel, kthreadd itself", "State:\tS (sleeping)\nPid:\t2\nPPid:\t0\n", true},
		{"older kernel, process 2 of a container's parent", "State:\tS (sleeping)\nPid:\t9\nPPid:\t2\nVmSize:\t4 kB\n", false},
		{"older kernel, process 1 of a container", "State:\tR (running)\nPid:\t1\nPPid:\t0\n", false},
		{"older kernel, process 2 of a container", "State:\tR (running)\nPid:\t2\nPPid:\t1\n", false},
		{"older kernel, zombie whose parent is 2", "State:\tZ (zombie)\nPid:\t9\nPPid:\t2\n", false},
	}
	for _, tt := range tests {
		s, err := ParseStatus(strings.NewReader(tt.text))
		if err != nil || s.KernelThread != tt.want {
			t.Errorf("%s: KernelThread %v, %v; want %v", tt.name, s.KernelThread, err, tt.want)
		}
	}
}

func TestParseStatusSeesOnlyTheShadowStack(t *testing.T) {
	s, err := ParseStatus(strings.NewReader("Pid:\t1\nx86_Thread_features:\twrss \n"))
	if err != nil || s.ShadowStack {
		t.Errorf("shadow stack %v, %v", s.ShadowStack, err)
	}
}

func TestParseStatusRefusesMalformedValues(t *testing.T) {
	for _, line := range []string{"Pid:\tx", "Uid:\t1\t2\t3", "Gid:\t1 2 3 x", "SigBlk:\t0xg", "State:\t", "CapEff:\t"} {
		key, _, _ := strings.Cut(line, ":")
		if _, err := ParseStatus(strings.NewReader("Pid:\t9\n" + line + "\n")); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v, want ErrFormat that names the key", line, err)
		}
	}
	if _, err := ParseStatus(strings.NewReader("Umask:\t0022\n")); !errors.Is(err, ErrFormat) {
		t.Errorf("no Pid: %v", err)
	}
}

func TestParseScopeTellsAbsentFromZero(t *testing.T) {
	for _, tt := range []struct {
		text    string
		err     error
		scope   int
		present bool
	}{{"0\n", nil, 0, true}, {"2\n", nil, 2, true}, {"", errors.New("not there"), 0, false}, {"x\n", nil, 0, false}} {
		if scope, present := parseScope([]byte(tt.text), tt.err); scope != tt.scope || present != tt.present {
			t.Errorf("%q, %v: %d, %v", tt.text, tt.err, scope, present)
		}
	}
}

func statLine(comm string) string {
	return "4711 (" + comm + ") S 12 4711 4711 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 987654321 3133440 435 18446744073709551615 " +
		"1 2 3 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0 1 2 3 4 5 6 7 0\n"
}

func TestParseStatFindsTheNameWhateverItHolds(t *testing.T) {
	for _, comm := range []string{"cat", "a b", "a) R 1 (b", ")", "", "x\ny", "((sd-pam))"} {
		want := Stat{Pid: 4711, Comm: comm, State: 'S', PPid: 12, Flags: 4194560, StartTime: 987654321, Processor: 5, StartBrk: 3}
		got, err := ParseStat(strings.NewReader(statLine(comm)))
		if err != nil || got != want {
			t.Errorf("comm %q: got %+v, %v\nwant %+v", comm, got, err, want)
		}
	}
}

func TestParseStatRefusesMalformedLines(t *testing.T) {
	good := statLine("cat")
	f := strings.Fields(good)
	if _, err := ParseStat(strings.NewReader(strings.Join(f[:39], " "))); err != nil {
		t.Errorf("a line that ends with the last field that is read: %v", err)
	}
	if _, err := ParseStat(strings.NewReader(strings.Join(f[:38], " "))); !errors.Is(err, ErrFormat) {
		t.Errorf("a line without that field: %v", err)
	}
	for _, s := range []string{"", "4711", "4711 (cat) S 1 2", "4711 )cat( S", strings.Replace(good, " 12 ", " x ", 1), strings.Replace(good, "4711 (", "z (", 1)} {
		if _, err := ParseStat(strings.NewReader(s)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", s, err)
		}
	}
}

func TestParseAuxvStopsAtNull(t *testing.T) {
	var b bytes.Buffer
	for _, w := range []uint64{3, 0x400040, 33, 0x7fff1000, 0, 0, 9, 9} {
		b.Write(binary.NativeEndian.AppendUint64(nil, w))
	}
	whole := b.Bytes()
	got, err := ParseAuxv(bytes.NewReader(whole))
	if err != nil || fmt.Sprint(got) != "map[3:4194368 33:2147422208]" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := ParseAuxv(bytes.NewReader(whole[:20])); err == nil {
		t.Error("a vector cut in the middle of a pair was accepted")
	}
}

// FuzzParsers: no input makes a parser panic, and what a parser accepts holds
// the invariants its users build on.
func FuzzParsers(f *testing.F) {
	f.Add("1000-2000 r-xp 0 0:0 0   /x (deleted)\n")
	f.Add(statusText)
	f.Add(statLine("a) (b"))
	f.Fuzz(func(t *testing.T, text string) {
		maps, err := ParseMaps(strings.NewReader(text))
		for _, m := range maps {
			if m.Range.Start >= m.Range.End {
				t.Errorf("empty range %v", m.Range)
			}
		}
		if err != nil && maps != nil {
			t.Error("maps returned with an error")
		}
		if s, err := ParseStatus(strings.NewReader(text)); err == nil && s.Pid == 0 {
			t.Error("a status without a Pid was accepted")
		}
		if s, err := ParseStat(strings.NewReader(text)); err == nil && s.State == 0 && !strings.Contains(text, "\x00") {
			t.Error("a stat without a state was accepted")
		}
		if b, err := ParseBlocked(strings.NewReader(text)); err != nil && b != (Blocked{}) {
			t.Error("a place was returned with an error")
		}
		_, _ = ParseAuxv(strings.NewReader(text))
		_, _ = parseInts(strings.NewReader(text))
	})
}
