package arg

import (
	"math"
	"strconv"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/lex"
)

const (
	maxOps   = 15   // FETCH_INSN_MAX, less the end
	maxStack = 2048 // words (PARAM_MAX_STACK: THREAD_SIZE of x86-64)
)

// step counts an instruction that the kernel would need to fetch the argument.
func (p *parser) step(column int) *caret.Fault {
	if p.ops++; p.ops == maxOps {
		return caret.At("TOO_MANY_OPS", column)
	}
	return nil
}

// source reads FETCHARG without a type.
func (p *parser) source(s string, column int) (fetch.Source, *caret.Fault) {
	if s == "" {
		return fetch.Source{}, caret.At("BAD_FETCH_ARG", column)
	}
	switch c := s[0]; {
	case c == '$':
		return p.special(s, column)
	case c == '%':
		name, ok := p.s.register(s[1:])
		if !ok {
			return fetch.Source{}, caret.At("BAD_REG_NAME", column)
		}
		return fetch.Source{Base: fetch.Register, Name: name}, nil
	case c == '@':
		return p.memory(s, column)
	case c == '+' || c == '-':
		return p.deref(s, column)
	case c == '\\':
		return immediate(s, column)
	case lex.IsLetter(c), p.s.AsInSource && IsPath(s):
		return p.variable(s, column)
	}
	return fetch.Source{}, caret.At("BAD_FETCH_ARG", column)
}

// argsAtHand tells whether arguments of the probed function can be had: at its entry, and at its return those of
// its entry.
func (p *parser) argsAtHand() bool {
	return !p.s.Uprobe && (p.s.Return || p.s.atEntry())
}

// special reads what begins with a dollar sign.
func (p *parser) special(s string, column int) (fetch.Source, *caret.Fault) {
	if strings.HasPrefix(s, "$retval") {
		return p.result(s, column)
	}
	if rest, ok := strings.CutPrefix(s, "$stack"); ok {
		return p.stack(rest, column)
	}
	if s == "$comm" || s == "$COMM" {
		return fetch.Source{Base: fetch.Comm}, nil
	}
	rest, ok := strings.CutPrefix(s, "$arg")
	if !ok {
		return fetch.Source{}, caret.At("BAD_VAR", column)
	}
	n, isNumber := lex.Number(rest, 10)
	switch {
	case rest == "*":
		return fetch.Source{}, caret.At("BAD_VAR_ARGS", column)
	case !isNumber:
		return fetch.Source{}, caret.At("BAD_VAR", column)
	case n == 0 || n > maxStack:
		return fetch.Source{}, caret.At("BAD_ARG_NUM", column)
	case !p.argsAtHand():
		return fetch.Source{}, caret.At("NOFENTRY_ARGS", column)
	}
	return fetch.Source{Base: fetch.Argument, N: int64(n)}, nil
}

func (p *parser) stack(number10 string, column int) (fetch.Source, *caret.Fault) {
	if number10 == "" {
		return fetch.Source{Base: fetch.Stack}, nil
	}
	n, ok := lex.Number(number10, 10)
	switch {
	case !ok || !lex.IsDigit(number10[0]):
		return fetch.Source{}, caret.At("BAD_VAR", column)
	case !p.s.Uprobe && n > maxStack, n > math.MaxUint32:
		return fetch.Source{}, caret.At("BAD_STACK_NUM", column)
	}
	return fetch.Source{Base: fetch.StackWord, N: int64(n)}, nil
}

// memory reads @ADDR, @+OFFS and @SYM[+|-OFFS].
func (p *parser) memory(s string, column int) (fetch.Source, *caret.Fault) {
	if f := p.step(column); f != nil {
		return fetch.Source{}, f
	}
	switch {
	case len(s) > 1 && lex.IsDigit(s[1]):
		n, ok := lex.Number(s[1:], 0)
		if !ok {
			return fetch.Source{}, lex.BadNumber("BAD_MEM_ADDR", column, s[1:])
		}
		return fetch.Source{Base: fetch.Memory, N: int64(n)}, nil
	case strings.HasPrefix(s, "@+"):
		n, ok := lex.Signed(s[2:])
		switch {
		case !p.s.Uprobe:
			return fetch.Source{}, caret.At("FILE_ON_KPROBE", column)
		case !ok:
			return fetch.Source{}, lex.BadNumber("BAD_FILE_OFFS", column, s[2:])
		}
		return fetch.Source{Base: fetch.FileOffset, N: n}, nil
	case p.s.Uprobe:
		return fetch.Source{}, caret.At("SYM_ON_UPROBE", column)
	}
	if f := p.step(column); f != nil {
		return fetch.Source{}, f
	}
	module, name, off, ok := lex.CutSymbol(s[1:])
	if !ok {
		return fetch.Source{}, caret.At("BAD_MEM_ADDR", column)
	}
	if module != "" {
		name = module + ":" + name
	}
	if p.s.Data != nil && !p.s.Data(name) {
		return fetch.Source{}, &caret.Fault{ID: "BAD_MEM_ADDR", Column: column, Errno: syscall.ENOENT}
	}
	return fetch.Source{Base: fetch.Symbol, Name: name, Off: off}, nil
}

// deref reads +|-[u]OFFS(FETCHARG).
func (p *parser) deref(s string, column int) (fetch.Source, *caret.Fault) {
	offset, user := strings.CutPrefix(s[1:], "u")
	offset, inner, ok := strings.Cut(offset, "(")
	if !ok {
		return fetch.Source{}, caret.At("DEREF_NEED_BRACE", column)
	}
	if s[0] == '-' {
		offset = "-" + offset
	}
	off, ok := lex.Signed(offset)
	if !ok {
		return fetch.Source{}, lex.BadNumber("BAD_DEREF_OFFS", column, offset)
	}
	column += len(s) - len(inner)
	end := strings.LastIndexByte(inner, ')')
	if end < 0 {
		return fetch.Source{}, caret.At("DEREF_OPEN_BRACE", column+len(inner))
	}
	source, f := p.source(inner[:end], column)
	switch {
	case f != nil:
		return source, f
	case source.Base == fetch.Comm || source.Base == fetch.Text:
		return source, caret.At("COMM_CANT_DEREF", column)
	case end+1 < len(inner):
		return source, caret.At("BAD_FETCH_ARG", column+end+1)
	}
	p.found = nil
	source.Derefs = append(source.Derefs[:len(source.Derefs):len(source.Derefs)], fetch.Deref{Off: off, User: user})
	return source, p.step(column)
}

// immediate reads \N and \"TEXT".
func immediate(s string, column int) (fetch.Source, *caret.Fault) {
	if text, ok := strings.CutPrefix(s, `\"`); ok {
		if !strings.HasSuffix(text, `"`) {
			return fetch.Source{}, caret.At("IMMSTR_NO_CLOSE", column+len(s))
		}
		return fetch.Source{Base: fetch.Text, Name: text[:len(text)-1]}, nil
	}
	s = s[1:]
	if v, ok := lex.Number(s, 0); ok && lex.IsDigit(s[0]) {
		return fetch.Source{Base: fetch.Immediate, N: int64(v)}, nil
	}
	n, ok := lex.Signed(s)
	if !ok || lex.IsDigit(s[0]) {
		return fetch.Source{}, lex.BadNumber("BAD_IMM", column+1, s)
	}
	return fetch.Source{Base: fetch.Immediate, N: n}, nil
}

// hasSymbol tells whether an argument reads memory at a symbol, which no uprobe does.
func (p *parser) hasSymbol(s string) bool {
	n := strings.IndexByte(s, '@')
	return !p.s.Uprobe && n >= 0 && n+1 < len(s) && !lex.IsDigit(s[n+1]) && s[n+1] != '+' && s[0] != '\\'
}

// typeColon is the index of the colon in front of an argument's type, -1 if there is none. It is the first one,
// but texts and symbols may have colons too.
func (p *parser) typeColon(s string) int {
	if strings.HasPrefix(s, `\"`) {
		if n := strings.LastIndex(s, `":`); n > 1 {
			return n + 1
		}
		return -1
	}
	if !p.hasSymbol(s) {
		if !p.s.AsInSource {
			return strings.IndexByte(s, ':')
		}
		return lex.TypeColon(s)
	}
	if s[0] != '@' {
		n := strings.LastIndexByte(s, ')')
		if n < 0 || n+1 == len(s) || s[n+1] != ':' {
			return -1
		}
		return n + 1
	}
	n := strings.LastIndexByte(s, ':')
	if n < 0 || s[n-1] == ':' {
		return -1
	}
	if module, _ := lex.CutModule(s[:n]); module != "" || looksLikeType(s[n+1:]) {
		return n
	}
	return -1
}

// looksLikeType tells a type from a symbol behind a module's name.
func looksLikeType(s string) bool {
	s, _, _ = strings.Cut(s, "[")
	_, ok := types[s]
	return ok || strings.Contains(s, "@") && strings.Contains(s, "/")
}

func decimal(n int) string { return strconv.Itoa(n) }
