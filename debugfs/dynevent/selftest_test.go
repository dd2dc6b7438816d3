package dynevent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// machine is a little world for lines to be about: functions with parameters, and files.
var machine = Context{
	Place: func(d *Definition) error {
		if d.Symbol != "" && d.Module == "" && functions[d.Symbol] == nil {
			return d.ErrorAs("BAD_PROBE_ADDR", PartPlace, syscall.ENOENT)
		}
		return nil
	},
	File: func(path string) (bool, error) {
		switch path {
		case "/bin/sh":
			return true, nil
		case "/sys":
			return false, nil
		}
		return false, &fs.PathError{Op: "stat", Path: path, Err: syscall.ENOENT}
	},
	Data: func(symbol string) bool {
		return symbol != "deaqswdefr" && !strings.ContainsAny(symbol, "*/%&|")
	},
	Function: func(d *Definition) (arg.Function, error) {
		if f := functions[d.Symbol]; f != nil {
			return f, nil
		}
		return nil, errors.New("nothing known")
	},
}

var functions = map[string]*function{
	"vfs_read": {params: []string{"file", "buf", "count", "pos"}, result: "s64"},
	"kfree":    {params: []string{"object"}},
	"fork":     {params: []string{"args"}, result: "s32"},
	"nothing":  {},
	"unnamed":  {params: []string{"", "b", "_"}, result: "s32"},
}

type function struct {
	params []string
	result string
}

func (f *function) Params() []string { return f.params }

func (f *function) Variable(name string, path []arg.Member) (arg.Variable, error) {
	v := arg.Variable{Source: fetch.Source{Base: fetch.Argument, N: int64(slices.Index(f.params, name) + 1)}}
	switch {
	case name == "$retval" && f.result == "":
		return v, arg.ErrNoResult
	case name == "$retval":
		v.Source = fetch.Source{Base: fetch.Retval}
		v.Type, _ = arg.TypeOf(f.result)
	case v.Source.N == 0:
		return v, arg.ErrNoVariable
	case name == "buf":
		v.Text = arg.TextPointer
	case name == "count":
		v.Type, _ = arg.TypeOf("u64")
	}
	for i, m := range path {
		switch {
		case m.Arrow && (name != "file" || i > 2):
			return v, &arg.MemberError{Step: i, Err: arg.ErrNoPointer}
		case m.Name == "foo":
			return v, &arg.MemberError{Step: i, Err: arg.ErrNoMember}
		case m.Name == "flags":
			v.Type, _ = arg.TypeOf("b4@4/32")
		case m.Name == "comm":
			v.Text = arg.TextArray
		}
		if m.Arrow {
			v.Source.Derefs = append(v.Source.Derefs, fetch.Deref{Off: 8})
		}
	}
	return v, nil
}

// long is a name of 65 bytes.
var long = strings.Repeat("1234567890", 6) + "12345"

// refusals are commands with a caret in front of what is wrong, as the kernel's selftests have them
// (tools/testing/selftests/ftrace/test.d/kprobe/{k,u}probe_syntax_errors.tc, dynevent/fprobe_syntax_errors.tc and kprobe_args_syntax.tc), then our own.
var refusals = []struct{ line, id string }{
	{"p^100 vfs_read", "BAD_MAXACT_TYPE"},
	{"r^1a111 vfs_read", "BAD_MAXACT"},
	{"r^0 vfs_read", "BAD_MAXACT"},
	{"r^10fuzz:myprobeaccept vfs_read", "BAD_MAXACT"},
	{"r^100000 vfs_read", "MAXACT_TOO_BIG"},
	{"r^1000000:myprobeaccept vfs_read", "MAXACT_TOO_BIG"},
	{"p ^non_exist_func", "BAD_PROBE_ADDR"},
	{"p ^hoge-fuga", "BAD_PROBE_ADDR"},
	{"p ^hoge+1000-1000", "BAD_PROBE_ADDR"},
	{"r ^vfs_read+10", "BAD_RETPROBE"},
	{"p:^/bar vfs_read", "NO_GROUP_NAME"},
	{"p:^" + long + "/bar vfs_read", "GROUP_TOO_LONG"},
	{"p:^foo.1/bar vfs_read", "BAD_GROUP_NAME"},
	{"p:^ vfs_read", "NO_EVENT_NAME"},
	{"p:foo/^" + long + " vfs_read", "EVENT_TOO_LONG"},
	{"p:foo/^bar.1 vfs_read", "BAD_EVENT_NAME"},
	{"p vfs_read ^$retval", "RETVAL_ON_PROBE"},
	{"p vfs_read ^$stack10000", "BAD_STACK_NUM"},
	{"p vfs_read x=^$arg10000", "BAD_ARG_NUM"},
	{"p vfs_read ^$none_var", "BAD_VAR"},
	{"p vfs_read ^%none_reg", "BAD_REG_NAME"},
	{"p vfs_read ^%ex", "BAD_REG_NAME"},
	{"p vfs_read ^@12345678abcde", "BAD_MEM_ADDR"},
	{"p vfs_read ^@+10", "FILE_ON_KPROBE"},
	{`p vfs_read arg1=\^x`, "BAD_IMM"},
	{`p vfs_read arg1=\"abcd^`, "IMMSTR_NO_CLOSE"},
	{"p vfs_read ^+0@0)", "DEREF_NEED_BRACE"},
	{"p vfs_read ^+0ab1(@0)", "BAD_DEREF_OFFS"},
	{"p vfs_read +0(+0(@0^)", "DEREF_OPEN_BRACE"},
	{"p vfs_read +0(^$comm)", "COMM_CANT_DEREF"},
	{"p vfs_read ^&1", "BAD_FETCH_ARG"},
	{"p vfs_read +0(^" + strings.Repeat("+0(", 13) + "@0" + strings.Repeat(")", 14), "TOO_MANY_OPS"},
	{"p vfs_read +0(@11):u8[10^", "ARRAY_NO_CLOSE"},
	{"p vfs_read +0(@11):u8[10]^a", "BAD_ARRAY_SUFFIX"},
	{"p vfs_read +0(@11):u8[^10a]", "BAD_ARRAY_NUM"},
	{"p vfs_read +0(@11):u8[^256]", "ARRAY_TOO_BIG"},
	{"p vfs_read @11:^unknown_type", "BAD_TYPE"},
	{"p vfs_read $stack0:^string", "BAD_STRING"},
	{"p vfs_read @11:^b10@a/16", "BAD_BITFIELD"},
	{"p vfs_read ^arg123456789012345678901234567890=@11", "ARG_NAME_TOO_LONG"},
	{"p vfs_read ^=@11", "NO_ARG_NAME"},
	{"p vfs_read ^var.1=@11", "BAD_ARG_NAME"},
	{"p vfs_read var1=@11 ^var1=@12", "USED_ARG_NAME"},
	{"p vfs_read ^+1234567(+1234567(+1234567(+1234567(+1234567(+1234567(@1234))))))", "ARG_TOO_LONG"},
	{"p vfs_read arg1=^", "NO_ARG_BODY"},
	{"p vfs_read^%hoge", "BAD_ADDR_SUFFIX"},
	{"p ^vfs_read+10%return", "BAD_RETPROBE"},
	{"p vfs_read args=^$arg*", "BAD_VAR_ARGS"},
	{"p vfs_read +0(^$arg*)", "BAD_VAR_ARGS"},
	{"p vfs_read $arg* ^$arg*", "DOUBLE_ARGS"},
	{"p vfs_read+20 ^$arg*", "NOFENTRY_ARGS"},
	{"p vfs_read ^hoge", "NO_BTFARG"},
	{"p kfree ^$arg10", "NO_BTFARG"},
	{"r kfree ^$retval", "NO_RETVAL"},
	{"r vfs_read $retval->^foo", "NO_PTR_STRCT"},
	{"p vfs_read file->^foo", "NO_BTF_FIELD"},
	{"p vfs_read file^-.foo", "BAD_HYPHEN"},
	{"p vfs_read ^file:string", "BAD_TYPE4STR"},

	{"p /bin/sh:^10a", "BAD_UPROBE_OFFS"},
	{"p ^/non_exist_file:100", "FILE_NOT_FOUND"},
	{"p ^/sys:100", "NO_REGULAR_FILE"},
	{"p /bin/sh:10(^1a)", "BAD_REFCNT"},
	{"p /bin/sh:10(10^", "REFCNT_OPEN_BRACE"},
	{"p /bin/sh:10(10)^a", "BAD_REFCNT_SUFFIX"},
	{"p /bin/sh:10 ^@+ab", "BAD_FILE_OFFS"},
	{"p /bin/sh:10 ^@symbol", "SYM_ON_UPROBE"},
	{"p /bin/sh:10^%hoge", "BAD_ADDR_SUFFIX"},
	{"p /bin/sh:10(10)^%return", "BAD_REFCNT_SUFFIX"},
	{"p /bin/sh:10 $stack0:^symstr", "BAD_TYPE"},

	{"p vfs_read ^@", "BAD_MEM_ADDR"},
	{"p vfs_read ^@deaqswdefr", "BAD_MEM_ADDR"},
	{"p vfs_read +0(+4(^@deaqswdefr+4))", "BAD_MEM_ADDR"},
	{"p vfs_read ^@_sdata*10", "BAD_MEM_ADDR"},
	{"p vfs_read ^@_sdata/10", "BAD_MEM_ADDR"},
	{"p vfs_read ^@_sdata%10", "BAD_MEM_ADDR"},
	{"p vfs_read ^@_sdata&10", "BAD_MEM_ADDR"},
	{"p vfs_read ^@_sdata|10", "BAD_MEM_ADDR"},
	{"p vfs_read ^$stackp", "BAD_VAR"},
	{"p vfs_read ^$stack0+10", "BAD_VAR"},
	{"p vfs_read ^$stack1-10", "BAD_VAR"},
	{"p vfs_read ^+(%ax)", "BAD_DEREF_OFFS"},
	{"p vfs_read ^(%ax+10)", "BAD_FETCH_ARG"},
	{"p vfs_read ^-(%ax)", "BAD_DEREF_OFFS"},
	{"p vfs_read ^(%ax)", "BAD_FETCH_ARG"},
	{"p vfs_read +10(^$comm)", "COMM_CANT_DEREF"},
	{"p vfs_read +0(%ax)^+10", "BAD_FETCH_ARG"},
	{"p vfs_read varname=^varname2=%ax", "NO_BTFARG"},
	{"p vfs_read %ax:^:x16", "BAD_TYPE"},
	{"p vfs_read %ax:^y16", "BAD_TYPE"},
	{"p vfs_read x16:^%ax", "BAD_TYPE"},
	{"p vfs_read $comm:^x64", "NEED_STRING_TYPE"},
	{"p vfs_read $stack:^string", "BAD_STRING"},
	{"p vfs_read %ax:^string", "BAD_STRING"},

	{"p vfs_read %ax:^u8[3]", "BAD_STRING"},
	{"p vfs_read $stack:^symstr", "BAD_SYMSTRING"},
	{"p vfs_read +u0(%si):^symstr", "BAD_SYMSTRING"},
	{"p vfs_read $comm:^string[2]", "NEED_STRING_TYPE"},
	{"p vfs_read +u8(^$comm)", "COMM_CANT_DEREF"},
	{"p vfs_read -4(%di):u8[^0]", "BAD_ARRAY_NUM"},
	{"p vfs_read %ax:^b0@0/8", "BAD_BITFIELD"},
	{"p vfs_read %ax:^b8@1/8", "BAD_BITFIELD"},
	{"p vfs_read %ax:^b8@1/24", "BAD_TYPE"},
	{"p vfs_read ^common_pid=%ax", "USED_ARG_NAME"},
	{"p vfs_read ^__probe_ip=%ax", "USED_ARG_NAME"},
	{"p vfs_read a=%ax b=%bx ^a=%cx", "USED_ARG_NAME"},
	{"p ^vfs_read-4", "BAD_PROBE_ADDR"},
	{"p ^vfs_read+4294967296", "BAD_PROBE_ADDR"},
	{"p ^vfs_read+", "BAD_PROBE_ADDR"},
	{"p ^lib.so:", "BAD_PROBE_ADDR"},
	{"p 0x1234 ^$arg1", "NOFENTRY_ARGS"},
	{"p lib.so:gone ^$arg*", "NOSUP_BTFARG"},
	{"p lib.so:gone ^count", "NO_BTF_ENTRY"},
	{"p nothing ^$arg*", "NOSUP_BTFARG"},
	{"p nothing ^some", "NO_BTF_ENTRY"},
	{"p vfs_read+4 ^count", "NOSUP_BTFARG"},
	{"p vfs_read ^$argument", "BAD_VAR"},
	{"p vfs_read ^$arg1x", "BAD_VAR"},
	{"p vfs_read ^$arg0", "BAD_ARG_NUM"},
	{"p vfs_read $arg1 ^$arg5", "NO_BTFARG"},
	{"p vfs_read file.^f_mode", "NOSUP_DAT_ARG"},
	{"p vfs_read file->f_path.^foo", "NO_BTF_FIELD"},
	{"p vfs_read file->a->b->c->^d", "NO_PTR_STRCT"},
	{"r lib.so:gone $retval->^x", "NO_BTF_ENTRY"},
	{"r vfs_read ^$retvalue", "BAD_VAR"},
	{"p /bin/sh:10 ^$arg1", "NOFENTRY_ARGS"},
	{"p /bin/sh:10 ^count", "NOSUP_BTFARG"},
	{"p /bin/sh:10 ^$retval", "RETVAL_ON_PROBE"},
	{"p /bin/sh:0x10:^0y", "FILE_NOT_FOUND"},
	{"p vfs_read ^" + strings.TrimSpace(strings.Repeat("%ax ", 129)), "TOO_MANY_ARGS"},
	{`p vfs_read \"a:b":^u8`, "NEED_STRING_TYPE"},
	{`p vfs_read \"a"b^`, "IMMSTR_NO_CLOSE"},
	{"p vfs_read +0(\\^y)", "BAD_IMM"},
}

func TestRefusalsPointAtWhatIsWrong(t *testing.T) {
	for _, r := range refusals {
		before, after, _ := strings.Cut(r.line, "^")
		want := len(before)
		if r.id == "FILE_NOT_FOUND" {
			want = len("p ")
		}
		_, err := ParseDynamic(before+after, machine)
		var e *caret.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v, want %s", r.line, err, r.id)
			continue
		}
		if e.ID != r.id || e.Column != want || e.Command != before+after {
			t.Errorf("%s: %s\n%s\n%*s^ column %d, want %s in column %d", r.line, e.ID, e.Command, e.Column, "", e.Column, r.id, want)
		}
		if e.Text == "" {
			t.Errorf("%s: no sentence", r.line)
		}
	}
}

// accepted are the same selftests' good arguments, and how they are listed.
func TestGoodArgumentsOfTheSelftests(t *testing.T) {
	for _, text := range []string{
		"%ax", "@_sdata", "@0x1234", "@_sdata+10", "@_sdata-10", "$stack", "$stack0", "$stack1", "$comm",
		"+0(%ax)", "-0(%ax)", "+10($stack)", "+0($stack1)", "+10(@_sdata-10)", "+0(+10(+20($stack)))",
		"%ax:x16", "$comm:string", "+0($stack):string", `\"text"`, `\1`, `\-1`, "+u0(+0(%si)):ustring", "+0(%di):u8[64]",
		"%di:symbol", "%di:symstr", "+0(%di):b4@4/32", "%di:char", "+0(%di):string[3]", "@libc.so.6:environ", "@libc.so.6:environ:u32",
	} {
		d, err := ParseKprobe("p vfs_read "+text, machine)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, want := d.String(), "p:kprobes/p_vfs_read_0 vfs_read arg1="+text; got != want {
			t.Errorf("%s is listed as %s", text, got)
		}
	}
}

func TestAtMost128Arguments(t *testing.T) {
	for _, place := range []string{"vfs_read", "/bin/sh:10"} {
		line := "p " + place
		for i := range arg.MaxArgs {
			line += fmt.Sprintf(" \\%d", i+1)
		}
		d, err := ParseDynamic(line, machine)
		if err != nil || len(d.Args) != arg.MaxArgs {
			t.Fatalf("%s with %d arguments: %v", place, arg.MaxArgs, err)
		}
		if _, err := ParseDynamic(line+" \\129", machine); !errors.Is(err, syscall.E2BIG) {
			t.Fatalf("%s with one more: %v", place, err)
		}
	}
}
