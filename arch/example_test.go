package arch_test

import (
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// Machine code is decoded one instruction at a time.
func ExampleArch() {
	var a arch.Arch = amd64.Arch{}
	code := []byte{0x55, 0x48, 0x89, 0xe5, 0xe8, 0x10, 0, 0, 0, 0xc3}
	for at := arch.Addr(0x1000); len(code) > 0; {
		i, err := a.Decode(code, at)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(at, a.Disassemble(i))
		if i.Flow == arch.FlowCall {
			fmt.Println("a call that returns from", i.Target, "to", i.End())
		}
		at, code = i.End(), code[i.Len():]
	}
	// Output:
	// 0x1000 push %rbp
	// 0x1001 mov %rsp,%rbp
	// 0x1004 callq 0x1019
	// a call that returns from 0x1019 to 0x1009
	// 0x1009 retq
}

// Registers have their customary names, and roles in calls.
func ExampleRegs() {
	r := amd64.Arch{}.NewRegs()
	r.Set("rdi", 0x1234)
	arg, _ := r.Arg(0)
	part, ok := r.Get("dil")
	fmt.Printf("%#x %#x %v\n", arg, part, ok)
	_, ok = r.Get("x0")
	fmt.Println(ok)
	// Output:
	// 0x1234 0x34 true
	// false
}
