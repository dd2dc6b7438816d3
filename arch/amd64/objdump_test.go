package amd64_test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// line is one instruction as objdump sees it.
type line struct {
	addr  arch.Addr
	bytes []byte
	text  string
}

// requires skips the test when a tool is missing.
func requires(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// objdump calls fn for every instruction in .text of file.
func objdump(t testing.TB, file string, fn func(line)) {
	t.Helper()
	requires(t, "objdump")
	cmd := exec.Command("objdump", "-d", "-w", "--insn-width=24", "-j", ".text", file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(out)
	s.Buffer(make([]byte, 1<<20), 1<<20)
	for s.Scan() {
		if l, ok := parseLine(s.Text()); ok {
			fn(l)
		}
	}
	if err := errors.Join(s.Err(), cmd.Wait()); err != nil {
		t.Fatalf("objdump %s: %v", file, err)
	}
}

// parseLine takes "  401000:<tab>f3 0f 1e fa  <tab>endbr64" apart; what is not of
// this form is a heading.
func parseLine(s string) (l line, ok bool) {
	addr, rest, _ := strings.Cut(s, ":\t")
	n, err := strconv.ParseUint(strings.TrimLeft(addr, " "), 16, 64)
	code, text, found := strings.Cut(rest, "\t")
	if err != nil || !found {
		return line{}, false
	}
	l = line{addr: arch.Addr(n), bytes: make([]byte, 0, 16), text: strings.TrimRight(text, " ")}
	for len(code) > 1 && code[0] != ' ' {
		b, err := strconv.ParseUint(code[:2], 16, 8)
		if err != nil {
			return line{}, false
		}
		l.bytes = append(l.bytes, byte(b))
		code = strings.TrimPrefix(code[2:], " ")
	}
	return l, len(l.bytes) > 0
}

// text is file's .text section.
func text(t testing.TB, file string) (arch.Addr, []byte) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	b, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	return arch.Addr(s.Addr), b
}

// alone matches what objdump prints for bytes that make no instruction: a bad
// decode, data, or prefixes that it could not attach to anything.
var alone = regexp.MustCompile(`\(bad\)|^\.byte|^((rex(\.[WRXB]+)?|data16|addr32|lock|repn?z|rep|bnd|notrack|[cdefgs]s) ?)+$`)

// noInsn tells that objdump made no instruction of a line's bytes.
func noInsn(text string) bool {
	return (strings.Contains(text, "(bad)") || !strings.ContainsAny(text, "%$<")) && alone.MatchString(text)
}

// branchTarget is where text's direct branch leads.
func branchTarget(text string) (arch.Addr, bool) {
	if i := strings.Index(text, " <"); i >= 0 {
		text = text[:i]
	}
	i := strings.LastIndexByte(text, ' ')
	if i < 0 {
		return 0, false
	}
	words := strings.TrimRight(text[:i], " ")
	name, _, _ := strings.Cut(words[strings.LastIndexByte(words, ' ')+1:], ",") // a hint may follow: jne,pn
	if name[0] != 'j' && !strings.HasPrefix(name, "call") && !strings.HasPrefix(name, "loop") && name != "xbegin" {
		return 0, false
	}
	to, err := strconv.ParseUint(strings.TrimPrefix(text[i+1:], "0x"), 16, 64)
	return arch.Addr(to), err == nil
}

// memTarget is the address in the comment in which objdump resolves an operand
// relative to rip. It forgets that one relative to eip has 32 bits.
func memTarget(text string) (arch.Addr, bool) {
	operands, comment, found := strings.Cut(text, " # ")
	if !found || !strings.Contains(operands, "ip)") {
		return 0, false
	}
	comment, _, _ = strings.Cut(strings.TrimPrefix(comment, "0x"), " ")
	to, err := strconv.ParseUint(comment, 16, 64)
	if strings.Contains(operands, "(%eip)") {
		to &= 0xffffffff
	}
	return arch.Addr(to), err == nil
}

// tally collects how one file's instructions compare.
type tally struct {
	same, bad, wait int
	refused         map[string]int
	example         map[string]string
}

// compare decodes the bytes of l, which are followed by rest, and reports the
// first difference from objdump.
func (c *tally) compare(l line, rest []byte) error {
	if noInsn(l.text) {
		c.bad++
		return nil
	}
	if l.bytes[0] == 0x9b && len(l.bytes) > 1 { // objdump joins fwait and what follows
		c.wait++
		if i, err := (amd64.Arch{}).Decode(rest, l.addr); err != nil || i.Len() != 1 {
			return fmt.Errorf("%s: fwait is %d bytes: %w", l.addr, i.Len(), err)
		}
		l.addr, l.bytes, rest = l.addr+1, l.bytes[1:], rest[1:]
	}
	i, err := amd64.Arch{}.Decode(rest, l.addr)
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), " of ")
		c.refused[what]++
		c.example[what] = fmt.Sprintf("% x  %s: %v", l.bytes, l.text, err)
		return nil
	}
	if !bytes.Equal(i.Bytes, l.bytes) {
		return fmt.Errorf("%s: % x is %d bytes, objdump says % x  %s", l.addr, i.Bytes, i.Len(), l.bytes, l.text)
	}
	c.same++
	return compareAddresses(i, l)
}

func compareAddresses(i arch.Insn, l line) error {
	var want arch.Addr
	direct := i.Flow == arch.FlowJump || i.Flow == arch.FlowCond || i.Flow == arch.FlowCall
	branches := direct
	if direct || strings.IndexByte(l.text, '%') < 0 {
		want, branches = branchTarget(l.text)
	}
	if direct != branches || direct && i.Target != want {
		return fmt.Errorf("%s: flow %d to %s, objdump says %s", l.addr, i.Flow, i.Target, l.text)
	}
	if want, found := memTarget(l.text); found != i.PCRel || want != i.MemTarget {
		return fmt.Errorf("%s: operand at %s (%t), objdump says %s", l.addr, i.MemTarget, i.PCRel, l.text)
	}
	return nil
}

// compareFile compares all of file. What is refused must be listed.
func compareFile(t *testing.T, file string) {
	t.Helper()
	base, code := text(t, file)
	c := &tally{refused: map[string]int{}, example: map[string]string{}}
	differences := 0
	objdump(t, file, func(l line) {
		if err := c.compare(l, code[l.addr-base:]); err != nil {
			if differences++; differences <= 20 {
				t.Error(err)
			}
		}
	})
	if c.same == 0 {
		t.Errorf("%s: nothing compared", file)
	}
	n := 0
	var what []string
	for k, v := range c.refused {
		n += v
		what = append(what, fmt.Sprintf("%d times %s", v, c.example[k]))
	}
	sort.Strings(what)
	t.Logf("%s: %d alike, %d different, %d refused, %d bad to objdump, %d after fwait", file, c.same, differences, n, c.bad, c.wait)
	for _, w := range what {
		if !listed(w) {
			t.Errorf("refused %s", w)
		}
	}
}

// files expands patterns, following links, each file once.
func files(patterns ...string) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range patterns {
		found, _ := filepath.Glob(p)
		for _, f := range found {
			if f, err := filepath.EvalSymlinks(f); err == nil && !seen[f] {
				seen[f] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// isProgram tells that file is a 64-bit x86 program or library.
func isProgram(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Machine == elf.EM_X86_64 && (f.Type == elf.ET_EXEC || f.Type == elf.ET_DYN) && f.Section(".text") != nil
}
