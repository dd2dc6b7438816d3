package realprog

import (
	"bufio"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// disassembly is objdump's view of a file's code. Addresses are the file's.
type disassembly struct {
	insns   []arch.Addr // sorted
	text    map[arch.Addr]string
	targets map[arch.Addr]bool // where direct branches lead
	starts  []arch.Addr        // where symbols are, sorted
	// jumpy are the starts of functions with a jump through a register or memory.
	jumpy map[arch.Addr]bool
}

// disassemble reads what objdump says of a whole file.
func disassemble(t testing.TB, path string) *disassembly {
	t.Helper()
	cmd := exec.Command("objdump", "-d", "--no-show-raw-insn", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("objdump: %v", err)
	}
	d := &disassembly{text: map[arch.Addr]string{}, targets: map[arch.Addr]bool{}, jumpy: map[arch.Addr]bool{}}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		d.line(lines.Text())
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		t.Fatalf("objdump %s: %v", path, err)
	}
	slices.Sort(d.insns)
	slices.Sort(d.starts)
	return d
}

// line takes "  401136:\tpush   %rbp" and "0000000000401136 <main>:".
func (d *disassembly) line(line string) {
	digits, insn, isInsn := strings.Cut(line, ":\t")
	if !isInsn {
		digits, _, isSymbol := strings.Cut(line, " <")
		if at, ok := hexAddr(digits); ok && isSymbol {
			d.starts = append(d.starts, at)
		}
		return
	}
	at, ok := hexAddr(strings.TrimSpace(digits))
	if !ok {
		return
	}
	d.insns = append(d.insns, at)
	d.text[at] = insn
	op, operand := operation(insn)
	switch to, direct := hexAddr(operand); {
	case direct && branches(op):
		d.targets[to] = true
	case strings.HasPrefix(op, "jmp") && len(d.starts) > 0:
		d.jumpy[d.starts[len(d.starts)-1]] = true
	}
}

// operation is an instruction's name without prefixes, and its first operand.
func operation(insn string) (op, operand string) {
	words := strings.Fields(insn)
	for i, word := range words {
		switch word {
		case "bnd", "notrack", "lock", "rep", "repz", "repnz", "data16", "addr32", "cs", "ds", "es", "fs", "gs", "ss":
			continue
		}
		if strings.HasPrefix(word, "rex") {
			continue
		}
		if i+1 < len(words) {
			operand = words[i+1]
		}
		op, _, _ = strings.Cut(word, ",") // a hint such as ,pt
		return op, operand
	}
	return "", ""
}

func branches(op string) bool {
	return strings.HasPrefix(op, "j") || strings.HasPrefix(op, "call") || strings.HasPrefix(op, "loop") || op == "xbegin"
}

func hexAddr(digits string) (arch.Addr, bool) {
	n, err := strconv.ParseUint(digits, 16, 64)
	return arch.Addr(n), err == nil
}

// within are the instructions in [from, to).
func (d *disassembly) within(from, to arch.Addr) []arch.Addr {
	i, _ := slices.BinarySearch(d.insns, from)
	j, _ := slices.BinarySearch(d.insns, to)
	return d.insns[i:j]
}

func (d *disassembly) isLanding(at arch.Addr) bool { return strings.HasPrefix(d.text[at], "endbr64") }

// falls tells whether the instruction at can only be followed by the next one, and
// where that is. A call is: what it calls returns.
func (d *disassembly) falls(at arch.Addr) (next arch.Addr, falls bool) {
	i, found := slices.BinarySearch(d.insns, at)
	if !found || i+1 == len(d.insns) {
		return 0, false
	}
	switch op, _ := operation(d.text[at]); {
	case branches(op) && !strings.HasPrefix(op, "call"), strings.HasPrefix(op, "ret"), op == "ud2", op == "hlt":
		return 0, false
	}
	return d.insns[i+1], true
}

// headsBlock tells whether the instruction at is where a branch leads to, or not, and
// is none itself.
func (d *disassembly) headsBlock(at arch.Addr) bool {
	if op, _ := operation(d.text[at]); branches(op) || strings.HasPrefix(op, "ret") {
		return false
	}
	i, _ := slices.BinarySearch(d.insns, at)
	if i == 0 || d.targets[at] {
		return true
	}
	_, falls := d.falls(d.insns[i-1])
	return !falls
}

// entered tells whether the instruction at may be come to from elsewhere than the one
// before it: by a branch, as a function, or by a jump in its function whose targets
// objdump does not know.
func (d *disassembly) entered(at arch.Addr) bool {
	i, isStart := slices.BinarySearch(d.starts, at)
	return isStart || d.targets[at] || i == 0 || d.jumpy[d.starts[i-1]]
}
