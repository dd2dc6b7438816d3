package debugfs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/kprobes"
)

const (
	cPaths = " n=r->number m=r->next->number path=r->path:string method=r->next->method:string version=r->next->version flags=r->next->flags" +
		" code=r->next->status.code next=r->next->next"
	cPathsShown = `n=8 m=7 path="/first" method="PUT" version=17 flags=6 code=-404 next=0x0`
)

// The parameters of a C function by name, and what they lead to (add_remove_btfarg.tc), at the call and at its return.
func TestVariablesOfC(t *testing.T) {
	inAllModes(t, "typed", func(t *testing.T, tr *tree) {
		tr.must(tr.set(events, "p:all handle $arg*\np:some handle text:string first=+0(text):char $arg2:x16\np:paths handle"+cPaths))
		tr.must(tr.add(events, "r:back handle"+cPaths+" seventh $retval got=$retval->path:string\nr:nothing done number"))
		tr.is(events, "p:kprobes/all handle r=r count=count text=text c=c e=e f=f seventh=seventh\n"+
			"p:kprobes/some handle text=text:string first=+0(text):char count=count:x16\n"+
			"p:kprobes/paths handle"+cPaths+"\n"+
			"r10:kprobes/back handle"+cPaths+" seventh=seventh arg10=$retval got=$retval->path:string\n"+
			"r10:kprobes/nothing done number=number\n")
		tr.must(tr.set("tracing/events/kprobes/enable", "1"))
		tr.call("", 7)
		tr.wantLines(
			`paths: \(.*\) `+cPathsShown, // of several probes at one place the newest is first
			`some: \(.*\) text="text" first='t' count=0x7`,
			`all: \(.*\) r=0x[0-9a-f]+ count=7 text=0x[0-9a-f]+ c=99 e=-5 f=0x0 seventh=-7`,
			`back: \(.* <- handle\) `+cPathsShown+` seventh=-7 arg10=0x[0-9a-f]+ got="/second"`,
			`nothing: \(.* <- done\) number=7`,
		)
	})
}

// A Go function's parameters are in other registers.
func TestVariablesOfGo(t *testing.T) {
	inAllModes(t, "govalues", func(t *testing.T, tr *tree) {
		tr.must(tr.set(events, "p:in main.(*Point).Moved $arg* x=p->X y=p->Y\nr:out main.(*Point).Moved v x=p->X $retval\nr:neg main.negative v $retval\nr:str main.parse s:string"))
		tr.must(tr.set("tracing/events/kprobes/enable", "1"))
		tr.session.WaitForOptimizer(t.Context())
		tr.prog.Do("call 5", "ret")
		tr.wantLines(`neg: \(.*\) v=5 arg2=-5`, `str: \(.*\) s="text"`, `in: \(.*\) p=0x[0-9a-f]+ v=5 x=1 y=2`, `out: \(.*\) v=5 x=1 arg3=0x6`)
	})
}

// The selftests' errors of BTF arguments, on a function that DWARF describes (kprobe_syntax_errors.tc, fprobe_syntax_errors.tc).
func TestVariablesThatAreNotThere(t *testing.T) {
	tr := open(t, "typed", kprobes.Options{})
	for line, id := range map[string]string{
		"p handle ^hoge": "NO_BTFARG", "p done ^$arg10": "NO_BTFARG", "r done ^$retval": "NO_RETVAL", "p handle+1 ^$arg*": "NOFENTRY_ARGS",
		"p handle $arg* ^$arg*": "DOUBLE_ARGS", "p handle r->^foo": "NO_BTF_FIELD", "p handle r->status.^foo": "NO_BTF_FIELD",
		"r handle $retval->^foo": "NO_BTF_FIELD", "p handle e->^foo": "NO_PTR_STRCT", "p handle r->number->^foo": "NO_PTR_STRCT",
		"p handle r^-.foo": "BAD_HYPHEN", "p handle ^r:string": "BAD_TYPE4STR", "p handle r.^path": "NOSUP_DAT_ARG",
	} {
		before, after, _ := strings.Cut(line, "^")
		err := tr.add(events, before+after)
		var e *caret.Error
		if !errors.As(err, &e) || e.ID != id || e.Column != len(before) {
			t.Errorf("%s: %v, want %s", line, err, id)
		}
	}
	tr.is(events, "")
}
