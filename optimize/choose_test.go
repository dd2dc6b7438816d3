package optimize

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

const base arch.Addr = 0x401000

// function is code at base, all of it the function's, followed by padding up to base+0x100.
func function(code ...byte) Function {
	return Function{
		Range: arch.Range{Start: base, End: base + arch.Addr(len(code))},
		Code:  append(bytes.Clone(code), bytes.Repeat([]byte{0x90}, 0x100-len(code))...),
		Next:  base + 0x100,
	}
}

func choose(f Function, at arch.Addr) (*Choice, error) {
	an, err := Analyze(code.Arch{}, code.Arch{}, f)
	if err != nil {
		return nil, err
	}
	return an.Site(at)
}

// describe prints an option: per byte of the displacement "*" any, "t" a breakpoint, "T" anything that traps, or
// the kept byte; then the number of displaced instructions.
func describe(o Option) string {
	var parts []string
	for _, set := range o.Pattern.Byte {
		var values []byte
		for v := range 256 {
			if set.Has(byte(v)) {
				values = append(values, byte(v))
			}
		}
		switch {
		case len(values) == 256:
			parts = append(parts, "*")
		case len(values) > 1:
			parts = append(parts, "T")
		case values[0] == 0xcc:
			parts = append(parts, "t")
		default:
			parts = append(parts, fmt.Sprintf("%02x", values[0]))
		}
	}
	return fmt.Sprintf("%s /%d", strings.Join(parts, " "), len(o.Insns))
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		fn   Function
		at   arch.Addr
		want []string
	}{
		{"one long instruction", function(0xb8, 1, 2, 3, 4, 0xc3), 0, []string{"* * * * /1"}},
		{"heads at 1 and 4", // push %rbp; mov %rsp,%rbp; sub $16,%rsp; ret
			function(0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc3), 0,
			[]string{"t * * T /3", "t * * 48 /2", "48 89 e5 48 /1"}},
		{"heads at 2 and 4", // push %r15; push %r14; push %r13; ret
			function(0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0xc3), 0,
			[]string{"t t * T /3", "t t * 41 /2", "t 41 56 41 /1", "* t * T /3", "* t * 41 /2", "* 41 56 41 /1"}},
		{"a head at every byte", function(0x50, 0x51, 0x52, 0x53, 0x56, 0xc3), 0,
			[]string{"t t t T /5", "t t t 56 /4", "t t 53 56 /3", "t 52 53 56 /2", "51 52 53 56 /1"}},
		{"a loop's head is kept", // xor %eax,%eax; L: inc %eax; mov %eax,(%rdi); jmp L
			function(0x31, 0xc0, 0xff, 0xc0, 0x89, 0x07, 0xeb, 0xfa), 0,
			[]string{"* ff c0 89 /1"}},
		{"a loop's head behind a head that may trap", // push; push; push; L: inc %eax; jmp L
			function(0x50, 0x51, 0x52, 0xff, 0xc0, 0xeb, 0xfc), 0,
			[]string{"t t ff c0 /3", "t 52 ff c0 /2", "51 52 ff c0 /1"}},
		{"a jump to the site itself", // L: inc %eax; mov %eax,(%rdi); jmp L
			function(0xff, 0xc0, 0x89, 0x07, 0xeb, 0xfa), 0,
			[]string{"* t * T /3", "* t * eb /2", "* 89 07 eb /1"}},
		{"a return address is kept", // call *%rax; pop %rbx; pop %rbp; ret
			function(0xff, 0xd0, 0x5b, 0x5d, 0xc3), 0, []string{"* 5b 5d c3 /1"}},
		{"a call that is displaced whole", // push %rax; call; ret
			function(0x50, 0xe8, 0, 1, 0, 0, 0xc3), 0, []string{"t * * * /2", "e8 00 01 00 /1"}},
		{"what can't be copied is kept", // mov %ecx,%r10; syscall; ret
			function(0x49, 0x89, 0xca, 0x0f, 0x05, 0xc3), 0, []string{"t * 0f 05 /1", "* * 0f 05 /1"}},
		{"code behind a jump is kept", // jmp +2; pop %rax; ret; nop…
			function(0xeb, 0x02, 0x58, 0xc3, 0x31, 0xc0, 0xc3), 0, []string{"* 58 c3 31 /1"}},
		{"nops behind a jump may trap", // jmp +3; nop; nop; nop; ret
			function(0xeb, 0x03, 0x90, 0x90, 0x90, 0xc3), 0,
			[]string{"* t t T /4", "* t t 90 /3", "* t 90 90 /2", "* 90 90 90 /1"}},
		{"code behind nops behind a jump is kept", // jmp +3; nop; pop %rax; ret; ret
			function(0xeb, 0x03, 0x90, 0x58, 0xc3, 0xc3), 0, []string{"* t 58 c3 /2", "* 90 58 c3 /1"}},
		{"padding behind a short function", function(0xc3), 0, []string{"* * * * /1", "90 90 90 90 /1"}},
		{"padding behind the end", function(0x31, 0xc0, 0xc3), 0, []string{"* t * * /2", "* t 90 90 /2", "* c3 90 90 /1"}},
		{"padding that the function's size includes", function(0x31, 0xc0, 0xc3, 0xcc, 0xcc, 0xcc), 0,
			[]string{"* t * * /2", "* t t t /2", "* c3 t t /1"}}, // int3 are kept
		{"padding that somebody jumps to", function(0x74, 0x01, 0xc3, 0x90, 0x90, 0x90), 0,
			[]string{"* t 90 90 /2", "* c3 90 90 /1"}},
		{"a nop as a site", function(0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90), 4,
			[]string{"t 90 90 90 /2", "90 90 90 90 /1"}},
		{"padding behind a program's own breakpoint", function(0x74, 0x01, 0xcc, 0xc3), 0,
			[]string{"* t c3 90 /1"}},
		{"no padding behind what falls through", function(0x31, 0xc0), 0, []string{"* 90 90 90 /1"}},
		{"the next function is kept", with(function(0x31, 0xc0, 0xc3), func(f *Function) { f.Next = base + 4 }), 0,
			[]string{"* t 90 90 /2", "* c3 90 90 /1"}},
		{"what follows is not known", with(function(0x31, 0xc0, 0xc3), func(f *Function) { f.Next = 0 }), 0,
			[]string{"* t 90 90 /2", "* c3 90 90 /1"}},
		{"a nop at an aligned address may begin a function", function(0x31, 0xc0, 0xb9, 0, 0, 0, 0, 0xb9, 0, 0, 0, 0, 0x31, 0xc0, 0xc3), 14,
			[]string{"90 90 90 90 /1"}},
		{"a given target is kept", with(function(0x50, 0x51, 0x52, 0x53, 0x56, 0xc3), func(f *Function) { f.Targets = []arch.Addr{base + 3} }), 0,
			[]string{"t t 53 56 /3", "t 52 53 56 /2", "51 52 53 56 /1"}},
		{"breakpoints only", with(function(0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0xc3), func(f *Function) { f.BreakpointOnly = true }), 0,
			[]string{"t t * t /3", "t t * 41 /2", "t 41 56 41 /1", "* t * t /3", "* t * 41 /2", "* 41 56 41 /1"}},
		{"a jump behind lock, with a head in front", // push; push; lock inc (%rdi); jmp to inc
			function(0x50, 0x51, 0xf0, 0xff, 0x07, 0xeb, 0xfc), 0, []string{"t f0 ff 07 /2", "51 f0 ff 07 /1"}},
		{"data behind the function's code", // jmp; 06
			function(0x31, 0xc0, 0xe9, 0, 1, 0, 0, 0x06, 0x06), 2, []string{"* * * * /1"}},
		{"code behind data", // jmp +3; xor; 06; push; push; push; push; push; ret
			function(0xeb, 0x03, 0x31, 0xc0, 0x06, 0x50, 0x51, 0x52, 0x53, 0x56, 0xc3), 5,
			[]string{"t t t T /5", "t t t 56 /4", "t t 53 56 /3", "t 52 53 56 /2", "51 52 53 56 /1"}},
		{"a jump over data", function(0xeb, 0x03, 0x31, 0xc0, 0x06, 0x50, 0xc3), 0, []string{"* 31 c0 06 /1"}},
		{"a given target behind data", with(function(0xc3, 0x06, 0x06, 0x51, 0x52, 0x53, 0x56, 0xc3), func(f *Function) { f.Targets = []arch.Addr{base + 3} }), 3,
			[]string{"t t t T /5", "t t t c3 /4", "t t 56 c3 /3", "t 53 56 c3 /2", "52 53 56 c3 /1"}},
		{"data close behind", function(0x31, 0xc0, 0xc3, 0x06, 0x06), 0, []string{"* t 06 06 /2", "* c3 06 06 /1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := choose(tt.fn, base+tt.at)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range c.Options {
				got = append(got, describe(o))
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func with(f Function, change func(*Function)) Function {
	change(&f)
	return f
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name string
		fn   Function
		at   arch.Addr
		want Refusal
	}{
		{"outside", function(0xc3), 0x10, Refusal{Reason: NoFunction, At: base + 0x10}},
		{"no code", Function{Range: arch.Range{Start: base, End: base + 4}}, 0, Refusal{Reason: NoFunction, At: base}},
		{"no head", function(0xb8, 1, 2, 3, 4, 0xc3), 2, Refusal{Reason: NotAHead, At: base + 2}},
		{"the code ends", with(function(0x31, 0xc0, 0xc3), func(f *Function) { f.Code = f.Code[:4] }), 0,
			Refusal{Reason: Ends, At: base + 4}},
		{"no instruction", function(0x31, 0xc0, 0x06, 0xc3), 0, Refusal{Reason: Undecodable, At: base + 2}},
		{"an instruction across the end", with(function(0xb8, 1, 2, 3, 4), func(f *Function) { f.Range.End-- }), 0,
			Refusal{Reason: Undecodable, At: base}},
		{"data", function(0xc3, 0x06, 0x31, 0xc0, 0xc3), 1, Refusal{Reason: InData, At: base + 1}},
		{"behind data, where nothing leads", function(0xc3, 0x06, 0x31, 0xc0, 0xc3), 2, Refusal{Reason: InData, At: base + 2}},
		{"data that looks like code at first", function(0xc3, 0x31, 0xc0, 0x06), 1, Refusal{Reason: InData, At: base + 1}},
		{"a jump into what can't be decoded", // je +1; ret; xor; 06
			function(0x74, 0x01, 0xc3, 0x31, 0xc0, 0x06), 0, Refusal{Reason: Undecodable, At: base + 3}},
		{"a jump back into what can't be decoded", // jmp +4; xor; 06; nop; jmp to xor
			function(0xeb, 0x04, 0x31, 0xc0, 0x06, 0x90, 0xeb, 0xfa), 0, Refusal{Reason: Undecodable, At: base + 2}},
		{"a jump behind the lock prefix", // L: lock inc (%rdi); jmp L+1
			function(0xf0, 0xff, 0x07, 0xeb, 0xfc), 0, Refusal{Reason: IntoMiddle, At: base + 1}},
		{"a jump behind the lock prefix, among data", // lock inc (%rdi); ret; 06; jmp behind lock
			function(0xf0, 0xff, 0x07, 0xc3, 0x06, 0xeb, 0xfa), 0, Refusal{Reason: IntoMiddle, At: base + 1}},
		{"a system call", function(0x0f, 0x05, 0xc3), 0, Refusal{Reason: NoCopy, At: base, Err: amd64.ErrSystemCall}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := choose(tt.fn, base+tt.at)
			var got *Refusal
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if got.Reason != tt.want.Reason || got.At != tt.want.At || tt.want.Err != nil && !errors.Is(err, tt.want.Err) {
				t.Errorf("got %v, want %v", got, &tt.want)
			}
		})
	}
}

func TestPadding(t *testing.T) {
	for _, tt := range []struct {
		insn []byte
		want bool
	}{
		{[]byte{0x90}, true},
		{[]byte{0xcc}, true},
		{[]byte{0x66, 0x90}, true},
		{[]byte{0x0f, 0x1f, 0x00}, true},
		{[]byte{0x0f, 0x1f, 0x44, 0x00, 0x00}, true},
		{[]byte{0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, true},
		{[]byte{0xf3, 0x90}, false},             // pause
		{[]byte{0x41, 0x90}, false},             // xchg %eax,%r8d
		{[]byte{0xf3, 0x0f, 0x1e, 0xfa}, false}, // endbr64
		{[]byte{0xc3}, false},
		{[]byte{0x66}, false},
		{[]byte{0x0f, 0x05}, false},
	} {
		if got := (code.Arch{}).Padding(arch.Insn{Bytes: tt.insn}); got != tt.want {
			t.Errorf("Padding(% x) = %v", tt.insn, got)
		}
	}
}

func TestReasonsHavePhrases(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons() {
		if s := r.String(); s == "" || seen[s] || !strings.Contains((&Refusal{Reason: r, At: base}).Error(), s) {
			t.Errorf("reason %d: %q", uint8(r), s)
		}
		seen[r.String()] = true
	}
	if s := Reason(200).String(); s != "reason 200" {
		t.Errorf("unknown reason: %q", s)
	}
}
