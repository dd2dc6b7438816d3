package dynevent

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// listings are lines and how the events that they define are listed (kprobe_eventname.tc, kretprobe_maxactive.tc,
// kretprobe_return_suffix.tc, kprobe_args.tc, add_remove_btfarg.tc among them).
var listings = []struct{ line, listed string }{
	{"p vfs_read", "p:kprobes/p_vfs_read_0 vfs_read"},
	{"p:event1 vfs_read", "p:kprobes/event1 vfs_read"},
	{"p:kprobes2/event2 vfs_read", "p:kprobes2/event2 vfs_read"},
	{"p:a-b.event2 vfs_read", "p:a-b/event2 vfs_read"},
	{"p:kprobes2/ vfs_read+4", "p:kprobes2/p_vfs_read_4 vfs_read+4"},
	{"p vfs_read+0x10", "p:kprobes/p_vfs_read_16 vfs_read+16"},
	{"p vfs_read+010", "p:kprobes/p_vfs_read_8 vfs_read+8"},
	{"p 0x7f1234", "p:kprobes/p_0x7f1234 0x7f1234"},
	{"p 16", "p:kprobes/p_0x10 0x10"},
	{"r0x10 0x7f1234", "r16:kprobes/r_0x7f1234 0x7f1234"},
	{"r:myprobeaccept vfs_read", "r:kprobes/myprobeaccept vfs_read"},
	{"r10:myprobeaccept vfs_read", "r10:kprobes/myprobeaccept vfs_read"},
	{"r10 vfs_read", "r10:kprobes/r_vfs_read_0 vfs_read"},
	{"p:myprobeaccept vfs_read%return", "r:kprobes/myprobeaccept vfs_read"},
	{"r:myprobeaccept vfs_read%return", "r:kprobes/myprobeaccept vfs_read"},
	{"p:testprobe vfs_read $stack $stack0 +0($stack)", "p:kprobes/testprobe vfs_read arg1=$stack arg2=$stack0 arg3=+0($stack)"},
	{"p vfs_read a=%ax:u8 b=$comm", "p:kprobes/p_vfs_read_0 vfs_read a=%ax:u8 b=$comm"},
	{"p:kpevent kfree object", "p:kprobes/kpevent kfree object=object"},
	{"p:kpevent kfree $arg*", "p:kprobes/kpevent kfree object=object"},
	{"p:kpevent kfree $arg1", "p:kprobes/kpevent kfree object=object"},
	{"p:kpevent kfree x=$arg1", "p:kprobes/kpevent kfree x=$arg1"},
	{"p e=%ax vfs_read", ""},
	{"p vfs_read $arg* %ax", "p:kprobes/p_vfs_read_0 vfs_read file=file buf=buf count=count pos=pos arg5=%ax"},
	{"p vfs_read $arg3:x8", "p:kprobes/p_vfs_read_0 vfs_read count=count:x8"},
	{"p unnamed $arg*", "p:kprobes/p_unnamed_0 unnamed arg1=$arg1 b=b arg3=$arg3"},
	{"r vfs_read ret=$retval path=file->f_path.dentry->d_name:u32", "r:kprobes/r_vfs_read_0 vfs_read ret=$retval path=file->f_path.dentry->d_name:u32"},
	{"p libc.so.6:malloc $arg1", "p:kprobes/p_libc_so_6_malloc_0 libc.so.6:malloc arg1=$arg1"},
	{"p libstdc++-4.8.so:_Znwm+4", "p:kprobes/p_libstdc___4_8_so__Znwm_4 libstdc++-4.8.so:_Znwm+4"},
	{"p m:main.(*T).M+0x12", "p:kprobes/p_m_main___T__M_18 m:main.(*T).M+18"},
	{"p m:main.(*T).M-fm", "p:kprobes/p_m_main___T__M_fm_0 m:main.(*T).M-fm"},
	{"p m:std::vector<int,std::allocator<int>>::operator[]", "p:kprobes/p_m_std__vector_int_std__allocator_int____operator___0 m:std::vector<int,std::allocator<int>>::operator[]"},
	{"p m:a::operator+", "p:kprobes/p_m_a__operator__0 m:a::operator+"},
	{"p m:a::operator-=+4", "p:kprobes/p_m_a__operator___4 m:a::operator-=+4"},
	{"p m:gopkg.in/yaml%2ev3.Unmarshal%return", "r:kprobes/r_m_gopkg_in_yaml_2ev3_Unmarshal_0 m:gopkg.in/yaml%2ev3.Unmarshal"},
	{"p m:foo.isra.0", "p:kprobes/p_m_foo_isra_0_0 m:foo.isra.0"},
	{"p m:" + strings.Repeat("x", 80), "p:kprobes/p_m_" + strings.Repeat("x", 59) + " m:" + strings.Repeat("x", 80)},

	{"p /bin/sh:10", "p:uprobes/p_sh_0xa /bin/sh:0x000000000000000a"},
	{"p:e /bin/sh:0x10(0x20) a=@+0x30:u8", "p:uprobes/e /bin/sh:0x0000000000000010(0x20) a=@+0x30:u8"},
	{"r /bin/sh:0x10", "r:uprobes/p_sh_0x10 /bin/sh:0x0000000000000010"},
	{"p:g/ /bin/sh:0x10%return(8) $retval", "r:g/p_sh_0x10 /bin/sh:0x0000000000000010(0x8) arg1=$retval"},
	{"p:g/ /bin/sh:0x10(0)", "p:g/p_sh_0x10 /bin/sh:0x0000000000000010"},
}

func TestListingDefinesTheSame(t *testing.T) {
	for _, l := range listings {
		d, err := ParseDynamic(l.line, machine)
		if l.listed == "" {
			if err == nil {
				t.Errorf("%s is accepted: %s", l.line, d)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", l.line, err)
			continue
		}
		if d.String() != l.listed || d.Command() != l.line {
			t.Errorf("%s\nis listed as %s\nwant         %s", l.line, d, l.listed)
		}
		again, err := ParseDynamic(d.String(), machine)
		if err != nil || again.String() != d.String() || !reflect.DeepEqual(again.Args, d.Args) || again.same(d) != true {
			t.Errorf("%s\nis listed as %s, which is %v, %v", l.line, d, again, err)
		}
	}
}

func TestAUprobesNameEndsAtADotADashOrABar(t *testing.T) {
	for path, name := range map[string]string{
		"/lib/libc.so.6": "p_libc_0x10", "/usr/bin/git-upload": "p_git_0x10", "/x/my_prog": "p_my_0x10", "/x/über": "p___ber_0x10", "./9": "p_9_0x10",
	} {
		d, err := ParseUprobe("r "+path+":0x10", Context{})
		if err != nil || d.Event != name || d.Group != "uprobes" {
			t.Errorf("%s: %+v, %v, want %s", path, d, err, name)
		}
	}
}

func TestWhatADefinitionTells(t *testing.T) {
	d, err := ParseKprobe("r20:g/e m:f%return $retval", Context{})
	if err != nil || d.Family != Kprobe || d.Kind != Return || d.MaxActive != 20 || !d.HasMax || d.Group != "g" || d.Event != "e" ||
		!d.GroupGiven || !d.EventGiven || d.Module != "m" || d.Symbol != "f" || d.Name() != "g/e" || len(d.Args) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = ParseDynamic("p /bin/sh:0x10(2)", machine)
	if err != nil || d.Family != Uprobe || d.Path != "/bin/sh" || d.FileOffset != 16 || d.Ref != 2 || !d.HasRef || d.GroupGiven || d.EventGiven {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestResultsHaveTheirTypes(t *testing.T) {
	for line, name := range map[string]string{
		"r vfs_read $retval": "s64", "r m:f $retval": "x64", "r vfs_read $retval:u8": "u8", "r /bin/sh:10 $retval": "x64",
		"r vfs_read count": "u64", "r m:f x=$arg2": "x64",
	} {
		d, err := ParseDynamic(line, machine)
		if err != nil || d.Args[0].Type.Name != name {
			t.Errorf("%s: %+v, %v, want %s", line, d, err, name)
		}
	}
}

func TestLinesThatAreNoCommands(t *testing.T) {
	for _, line := range []string{
		"", "p", "r10", "x vfs_read", "a:myprobeaccept inet_csk_accept", "pfoo vfs_read", "r:foo", "- foo", "-foo", "-:", "!p", "!",
		"p100 /bin/sh:10", "r1 /bin/sh:10", "f:e vfs_read", "px:e vfs_read",
	} {
		d, err := ParseDynamic(line, machine)
		var e *caret.Error
		if d != nil || !errors.Is(err, syscall.EINVAL) || errors.As(err, &e) {
			t.Errorf("%q: %v, %v", line, d, err)
		}
	}
	for _, line := range []string{"p /bin/sh:10", "!p:e vfs_read"} {
		if d, err := ParseKprobe(line, machine); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a line of kprobe_events: %q: %v, %v", line, d, err)
		}
	}
	for _, line := range []string{"p vfs_read", "p a/b:c", "p /bin/sh:x10", "!p:e /bin/sh:10"} {
		if d, err := ParseUprobe(line, machine); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a line of uprobe_events: %q: %v, %v", line, d, err)
		}
	}
}

func TestErrnos(t *testing.T) {
	for line, errno := range map[string]syscall.Errno{
		"p gone": syscall.ENOENT, "p hoge-1": syscall.EINVAL, "p /gone:10": syscall.ENOENT, "p /sys:10": syscall.EINVAL,
		"p vfs_read hoge": syscall.ENOENT, "p vfs_read @deaqswdefr": syscall.ENOENT, "p vfs_read @": syscall.EINVAL, "p vfs_read+4 hoge": syscall.EINVAL, "p vfs_read $arg* $arg*": syscall.EINVAL,
		"p vfs_read " + strings.Repeat("+0(", 30) + "%ax": syscall.E2BIG, "r kfree $retval": syscall.ENOENT, "p vfs_read file.x": syscall.EOPNOTSUPP,
	} {
		if _, err := ParseDynamic(line, machine); !errors.Is(err, errno) {
			t.Errorf("%s: %v, want %v", line, err, errno)
		}
	}
}

func TestDeletes(t *testing.T) {
	var events []*Definition
	for _, line := range []string{
		"p:g/e vfs_read", "p:g/e vfs_read+4 a=%ax", "p:h/e vfs_read", "p:h/f vfs_read", "p:h/e /bin/sh:0x10(8) a=%ax b=%bx", "r:h/r kfree",
	} {
		d, err := ParseDynamic(line, machine)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, d)
	}
	for _, c := range []struct {
		parse func(string, Context) (*Definition, error)
		line  string
		want  []int
	}{
		{ParseDynamic, "-:e", []int{0, 1, 2, 4}},
		{ParseKprobe, "-:e", []int{0, 1, 2}},
		{ParseUprobe, "-:e", []int{4}},
		{ParseKprobe, "-:g/e", []int{0, 1}},
		{ParseKprobe, "-:g.e", nil}, // only a definition's name may have a dot
		{ParseKprobe, "-:/e", nil},
		{ParseKprobe, "-:/", nil},
		{ParseDynamic, "-:h/", []int{2, 3, 4, 5}},
		{ParseKprobe, "-:g/e vfs_read", []int{0}},
		{ParseKprobe, "-:g/e vfs_read+4", []int{1}},
		{ParseKprobe, "-:g/e vfs_read+4 a=%ax", []int{1}},
		{ParseKprobe, "-:g/e vfs_read+4 a=%bx", nil},
		{ParseKprobe, "-:g/e vfs_read a=%ax", nil},
		{ParseDynamic, "!p:g/e vfs_read+4 a=%ax", []int{1}},
		{ParseDynamic, "!r10:h/r kfree", []int{5}},
		{ParseDynamic, "!p:h/e /bin/sh:0x0000000000000010(0x8) a=%ax", []int{4}},
		{ParseDynamic, "-:gone", nil},
	} {
		d, err := c.parse(c.line, Context{})
		if err != nil || d.Kind != Delete || d.Exact != strings.Contains(c.line, " ") || d.String() != c.line {
			t.Errorf("%s: %+v, %v", c.line, d, err)
			continue
		}
		var got []int
		for i, e := range events {
			if d.Deletes(e) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s deletes %v, want %v", c.line, got, c.want)
		}
	}
}

// The selftest kprobe_syntax_errors.tc, "multiprobe errors".
func TestProbesOfOneEvent(t *testing.T) {
	parse := func(line string) *Definition {
		d, err := ParseDynamic(line, machine)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return d
	}
	for _, c := range []struct{ first, second, id string }{
		{"p:kprobes/testevent fork", "^r:kprobes/testevent kfree", "DIFF_PROBE_TYPE"},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent fork ^bcd=\1`, "DIFF_ARG_TYPE"},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent fork ^abcd=\1:u8`, "DIFF_ARG_TYPE"},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent fork ^abcd=\"foo"`, "DIFF_ARG_TYPE"},
		{`p:kprobes/testevent fork abcd=\1`, `^p:kprobes/testevent fork abcd=\1`, "SAME_PROBE"},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent fork ^`, "DIFF_ARG_TYPE"},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent fork abcd=\1 ^b=\2`, "DIFF_ARG_TYPE"},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent fork abcd=\2`, ""},
		{`p:kprobes/testevent fork abcd=\1`, `p:kprobes/testevent kfree abcd=\1`, ""},
		{"p:x/e fork a=%ax:b1@1/8", "p:x/e fork a=%ax:u8", ""},
		{"p:x/e fork a=+0(%ax):b1@1/8[2]", "p:x/e fork ^a=%ax:u8", "DIFF_ARG_TYPE"},
		{"p:x/e fork a=%ax:b1@1/8", "p:x/e fork ^a=%ax:b1@1/16", "DIFF_ARG_TYPE"},
		{"p:x/e fork a=%ax:u8", "p:x/e fork ^a=%ax:x8", "DIFF_ARG_TYPE"},
		{"p:x/e fork", "^p:x/e /bin/sh:10", "EVENT_EXIST"},
	} {
		before, after, _ := strings.Cut(c.second, "^")
		d := parse(before + after)
		err := d.Joins([]*Definition{parse(c.first)})
		var e *caret.Error
		switch errors.As(err, &e); {
		case c.id == "" && err != nil:
			t.Errorf("%s after %s: %v", c.second, c.first, err)
		case c.id != "" && (e == nil || e.ID != c.id || e.Column != len(before) || !errors.Is(err, syscall.EEXIST)):
			t.Errorf("%s after %s: %+v", c.second, c.first, e)
		}
	}
	if err := parse("p fork").Joins(nil); err != nil {
		t.Error(err)
	}
}

func TestPartsOfACommand(t *testing.T) {
	d, err := ParseKprobe("r16:grp/ev   vfs_read $arg* x=%ax", machine)
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[Part]string{
		PartCommand: "r16:grp/ev vfs_read $arg* x=%ax", PartMaxActive: "16:", PartGroup: "grp/", PartEvent: "ev ", PartPlace: "vfs_read",
		PartArg: "$arg*", PartArg + 3: "$arg*", PartArg + 4: "x=%ax", PartArg + 5: "",
	} {
		var e *caret.Error
		if err := d.ErrorAs("BAD_INSN_BNDRY", part, 0); !errors.As(err, &e) || e.Errno != syscall.EILSEQ || e.System != "trace_kprobe" {
			t.Fatal(err)
		}
		if e.Column > len(e.Command)+1 || want != "" && !strings.HasPrefix(e.Command[e.Column:], want) || want == "" && e.Column != len(e.Command)+1 {
			t.Errorf("part %d is in column %d", part, e.Column)
		}
	}
}
