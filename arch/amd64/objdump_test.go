package amd64_test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
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
		fields := strings.Split(s.Text(), "\t")
		if len(fields) < 3 {
			continue
		}
		addr, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(fields[0]), ":"), 16, 64)
		if err != nil {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(fields[1]), " ", ""))
		if err != nil {
			t.Fatalf("objdump printed %q", s.Text())
		}
		fn(line{arch.Addr(addr), b, strings.TrimSpace(fields[2])})
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("objdump %s: %v", file, err)
	}
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

// branchTarget matches an objdump line of a direct branch.
var branchTarget = regexp.MustCompile(`^(?:[a-zA-Z0-9.]+ )*(?:j[a-z]+|callq?|loop[a-z]*|xbegin)(?:,p[nt])? +(?:0x)?([0-9a-f]+)(?: <|$)`)

// memTarget matches the comment in which objdump resolves a relative operand.
var memTarget = regexp.MustCompile(`\(%[re]ip\).*# (?:0x)?([0-9a-f]+)`)

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
		what, _, _ := strings.Cut(l.text, " ")
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

// mayBranch is a quick look before the regular expression.
func mayBranch(text string) bool {
	return strings.HasPrefix(text, "j") || strings.HasPrefix(text, "xbegin") || strings.Contains(text, "call") || strings.Contains(text, "loop") || strings.Contains(text, " j")
}

func compareAddresses(i arch.Insn, l line) error {
	direct := i.Flow == arch.FlowJump || i.Flow == arch.FlowCond || i.Flow == arch.FlowCall
	var m []string
	if direct || mayBranch(l.text) {
		m = branchTarget.FindStringSubmatch(l.text)
	}
	if m != nil {
		if want, _ := strconv.ParseUint(m[1], 16, 64); i.Target != arch.Addr(want) {
			return fmt.Errorf("%s: target %s, objdump says %s", l.addr, i.Target, l.text)
		}
	} else if direct {
		return fmt.Errorf("%s: flow %d, objdump says %s", l.addr, i.Flow, l.text)
	}
	if m = nil; strings.Contains(l.text, "ip)") {
		m = memTarget.FindStringSubmatch(l.text)
	}
	if m != nil {
		want, _ := strconv.ParseUint(m[1], 16, 64)
		if strings.Contains(l.text, "(%eip)") { // objdump forgets that the address has 32 bits
			want &= 0xffffffff
		}
		if !i.PCRel || i.MemTarget != arch.Addr(want) {
			return fmt.Errorf("%s: operand at %s (%t), objdump says %s", l.addr, i.MemTarget, i.PCRel, l.text)
		}
	} else if i.PCRel {
		return fmt.Errorf("%s: operand at %s, objdump says %s", l.addr, i.MemTarget, l.text)
	}
	return nil
}

// compareFile compares all of file. Refusals are allowed only if its text holds
// data too, as is seen by what objdump makes of it.
func compareFile(t *testing.T, file string) *tally {
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
		what = append(what, fmt.Sprintf("%d %s", v, c.example[k]))
	}
	sort.Strings(what)
	t.Logf("%s: %d alike, %d different, %d refused, %d bad to objdump, %d after fwait", file, c.same, differences, n, c.bad, c.wait)
	for _, w := range what {
		t.Log("refused ", w)
		if c.bad == 0 && !unsupported.MatchString(w) {
			t.Error("objdump finds only instructions here")
		}
	}
	return c
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

func TestEveryInstructionOfLibcAndAGoProgramIsAsLongAsObjdumpSays(t *testing.T) {
	requires(t, "objdump")
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	goroot := strings.TrimSpace(string(root))
	tools := filepath.Join(goroot, "pkg/tool/linux_amd64")
	list := files("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", filepath.Join(tools, "preprofile"))
	if os.Getenv("GOKPROBE_TORTURE") != "" {
		dir := "/usr/lib/x86_64-linux-gnu/"
		list = append(list, files(dir+"libm.so.6", dir+"libcrypto.so.3", dir+"libstdc++.so.6", "/usr/bin/gdb",
			"/usr/bin/python3", filepath.Join(tools, "asm"), filepath.Join(tools, "compile"), filepath.Join(goroot, "bin/go"))...)
	}
	for _, f := range list {
		t.Run(filepath.Base(f), func(t *testing.T) {
			compareFile(t, f)
		})
	}
}
