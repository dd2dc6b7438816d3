package trigger

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// term is a key, a value or a variable of a histogram: a field, or an expression.
type term struct {
	op       op
	name     string     // of the field, of the variable that is referred to
	index    int        // opField: which of the event; opVar: which of Spec.refs
	typ      fetch.Type // opField
	constant uint64
	mod      modifier
	comm     bool   // .execname of a variable: the name itself, not the number
	width    uint64 // of buckets
	a, b     *term
	variable string // the name of the variable that this defines
}

type op uint8

const (
	opField op = iota
	opConst
	opCPU
	opTime
	opStack
	opHits
	opVar   // a variable of another histogram, made by a there
	opLocal // a variable of this one, made by a
	opAdd
	opSub
	opMul
	opDiv
	opNeg
)

// signs are how the operators are listed.
var signs = map[op]string{opAdd: "+", opSub: "-", opMul: "*", opDiv: "/"}

type modifier uint8

const (
	plain modifier = iota
	hex
	sym
	symOffset
	execname
	syscallName
	stacktrace
	log2
	usecs
	buckets
	percent
	graph
)

// modifiers are as they are written behind the dot.
var modifiers = [...]string{"", "hex", "sym", "sym-offset", "execname", "syscall", "stacktrace",
	"log2", "usecs", "buckets", "percent", "graph"}

// isExpr is whether the term is computed from others.
func (t *term) isExpr() bool { return t.op >= opAdd }

// isText is whether its values are strings.
func (t *term) isText() bool {
	switch t.op {
	case opField:
		return isText(t.typ) || t.comm
	case opLocal, opVar:
		return t.a.isText()
	}
	return false
}

func isText(t fetch.Type) bool {
	return t.Kind == fetch.String || t.Kind == fetch.UString || t.Kind == fetch.SymStr
}

// signed is whether its values are compared as signed numbers.
func (t *term) signed() bool {
	switch {
	case t.a != nil:
		return t.a.signed()
	case t.op == opField:
		return t.typ.HasSign()
	}
	return false
}

// refers is whether some variable of a histogram stands in it.
func (t *term) refers() bool {
	return t != nil && (t.op == opVar || t.op == opLocal || t.a.refers() || t.b.refers())
}

// inUsecs is whether it is a time in microseconds.
func (t *term) inUsecs() bool { return t != nil && (t.mod == usecs || t.a.inUsecs()) }

// label is its name in front of the values, and what sort= names it by.
func (t *term) label() string {
	switch t.op {
	case opConst:
		return ""
	case opCPU:
		return "common_cpu"
	case opTime:
		return "common_timestamp"
	case opStack:
		return "common_stacktrace"
	case opHits:
		return "hitcount"
	case opNeg:
		return "-(" + t.a.expression() + ")"
	case opAdd, opSub, opMul, opDiv:
		return t.a.operand() + signs[t.op] + t.b.operand()
	}
	return t.name
}

// operand is how it stands in an expression.
func (t *term) operand() string {
	switch t.op {
	case opConst:
		return strconv.FormatUint(t.constant, 10)
	case opVar, opLocal:
		return "$" + t.name
	}
	return t.label() + t.suffix()
}

func (t *term) expression() string {
	if t.isExpr() {
		return t.label()
	}
	return t.operand()
}

func (t *term) suffix() string {
	if t.mod == plain || t.op == opStack {
		return ""
	}
	return "." + modifiers[t.mod]
}

// String is how the trigger file lists it.
func (t *term) String() string {
	var b strings.Builder
	if t.variable != "" {
		b.WriteString(t.variable + "=")
	}
	b.WriteString(t.operand())
	if t.mod == buckets {
		b.WriteString("=" + strconv.FormatUint(t.width, 10))
	}
	return b.String()
}

// scene is what terms are computed from.
type scene struct {
	hit   *Hit
	refs  []fetch.Value // what Spec.refs refer to
	usecs bool          // times are in microseconds

	locals map[*term]fetch.Value // variables that have been computed: each is once
}

func (s *scene) local(t *term) fetch.Value {
	v, ok := s.locals[t]
	if !ok {
		v = t.value(s)
		if s.locals == nil {
			s.locals = map[*term]fetch.Value{}
		}
		s.locals[t] = v
	}
	return v
}

// value is the term's value at a hit. A stack is in Elems.
func (t *term) value(s *scene) fetch.Value {
	switch t.op {
	case opField:
		return t.field(s.hit)
	case opStack:
		return s.hit.stackValue()
	case opVar:
		return s.refs[t.index]
	case opLocal:
		return s.local(t.a)
	}
	return fetch.Value{U: t.modified(t.number(s))}
}

// field is the value of the event's field.
func (t *term) field(h *Hit) fetch.Value {
	var v fetch.Value
	if t.index < len(h.Values) {
		v = h.Values[t.index]
	}
	if isText(t.typ) && v.Fault {
		return fetch.Value{S: fetch.FaultText}
	}
	if isText(t.typ) {
		return fetch.Value{S: v.S}
	}
	if t.comm {
		return fetch.Value{S: h.Comm}
	}
	return fetch.Value{U: t.modified(v.U)}
}

func (t *term) number(s *scene) uint64 {
	switch t.op {
	case opConst:
		return t.constant
	case opCPU:
		return uint64(s.hit.CPU)
	case opTime:
		if s.usecs {
			return uint64(s.hit.Time.Microseconds())
		}
		return uint64(s.hit.Time.Nanoseconds())
	case opHits:
		return 1
	case opNeg:
		return -t.a.value(s).U
	}
	return compute(t.op, t.a.value(s).U, t.b.value(s).U)
}

// compute is a op b. What is divided by 0 is -1, as in the kernel.
func compute(o op, a, b uint64) uint64 {
	switch o {
	case opAdd:
		return a + b
	case opSub:
		return a - b
	case opMul:
		return a * b
	}
	if b == 0 {
		return ^uint64(0)
	}
	return a / b
}

// modified is n as .log2 and .buckets leave it.
func (t *term) modified(n uint64) uint64 {
	switch {
	case t.mod == log2 && n > 1:
		return uint64(bits.Len64(n - 1)) // the exponent of the next power of two
	case t.mod == log2:
		return 0
	case t.mod == buckets:
		return n - n%t.width
	}
	return n
}
