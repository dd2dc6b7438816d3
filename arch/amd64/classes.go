package amd64

import "github.com/gokprobe/gokprobe/arch"

// class tells how an instruction can be run elsewhere.
type class uint8

const (
	linear       class = iota // its effect does not depend on where it stands, operands aside
	jump                      // direct
	condJump                  // jcc
	loopJump                  // loop, loope, loopne, jrcxz
	call                      // direct
	indirectJump              // near, through r/m64
	indirectCall
	ret
	x87         // the FPU records its address
	setsFlags   // popf
	loadsSS     // mov ss
	systemCall  // syscall, sysenter, int 0x80
	breakpoint  // int3
	raises      // ud2 and its kin, int n, int1, hlt
	privileged  // raises too, in user mode
	performed   // the kernel may perform it: with UMIP, and by iopl(2)
	farJump     // to an absolute address, and maybe to another code segment
	farCall     // the same, and pushes a return address
	farReturn   // far ret, iret, uiret, and privileged instructions of that kind
	enclave     // enclu
	transaction // xbegin
)

// flows is how control leaves each class.
var flows = [...]arch.Flow{
	linear: arch.FlowNext, jump: arch.FlowJump, condJump: arch.FlowCond, loopJump: arch.FlowCond,
	call: arch.FlowCall, indirectJump: arch.FlowIndirectJump, indirectCall: arch.FlowIndirectCall,
	ret: arch.FlowReturn, x87: arch.FlowNext, setsFlags: arch.FlowNext, loadsSS: arch.FlowNext,
	systemCall: arch.FlowSyscall, breakpoint: arch.FlowTrap, raises: arch.FlowTrap,
	privileged: arch.FlowNext, performed: arch.FlowNext, farJump: arch.FlowFar, farCall: arch.FlowFar, farReturn: arch.FlowFar,
	enclave: arch.FlowFar, transaction: arch.FlowCond,
}

// mustStep is why a class is not followed by a jump back.
var mustStep = [...]string{
	x87:       "the FPU records the copy's address as that of its last instruction, and it must be put right",
	setsFlags: "popf may set the trap flag, and its debug trap would come after the jump back instead of after the successor",
	loadsSS:   "loading ss holds back the debug trap of a program that traces itself, until after the jump back",
	performed: "if the kernel performs it there is no debug trap after it, but one after the jump back",
	farCall:   "the return address that it pushes must be put right",
}

// nearBranch tells that c takes its operand size as SDM vol. 1 §6.3.7 says.
func (c class) nearBranch() bool { return c >= jump && c <= ret }

type classRow struct {
	pattern
	class class
}

var classIndex = newIndex(len(classRows), func(i int) *pattern { return &classRows[i].pattern })

// classOf finds f's class; code is f's bytes.
func classOf(f *form, code []byte) class {
	for _, n := range classIndex[f.space][f.op] {
		row := &classRows[n]
		if !row.matches(f) {
			continue
		}
		if row.class == raises && f.space == oneByte && f.op == 0xcd {
			return interrupt(code[f.imm])
		}
		return row.class
	}
	return linear
}

// interrupt is the class of int n (SDM vol. 2A INT n).
func interrupt(n byte) class {
	switch n {
	case 3:
		return breakpoint
	case 0x80:
		return systemCall
	}
	return raises
}

// classRows lists every instruction that is not linear; the first match counts.
var classRows = []classRow{
	{pattern{space: oneByte, lo: 0x6c, hi: 0x6f}, privileged}, // ins, outs
	{pattern{space: oneByte, lo: 0x70, hi: 0x7f}, condJump},
	{pattern{space: oneByte, lo: 0x8e, reg: r(2)}, loadsSS},
	{pattern{space: oneByte, lo: 0x9d}, setsFlags},
	{pattern{space: oneByte, lo: 0xc2, hi: 0xc3}, ret},
	{pattern{space: oneByte, lo: 0xc7, mod: inRegister, reg: r(7)}, transaction}, // xbegin
	{pattern{space: oneByte, lo: 0xca, hi: 0xcb}, farReturn},
	{pattern{space: oneByte, lo: 0xcc}, breakpoint},
	{pattern{space: oneByte, lo: 0xcd}, raises},
	{pattern{space: oneByte, lo: 0xcf}, farReturn},
	{pattern{space: oneByte, lo: 0xd8, hi: 0xdf}, x87},
	{pattern{space: oneByte, lo: 0xe0, hi: 0xe3}, loopJump},
	{pattern{space: oneByte, lo: 0xe4, hi: 0xe7}, privileged}, // in, out
	{pattern{space: oneByte, lo: 0xe8}, call},
	{pattern{space: oneByte, lo: 0xe9}, jump},
	{pattern{space: oneByte, lo: 0xeb}, jump},
	{pattern{space: oneByte, lo: 0xec, hi: 0xef}, privileged}, // in, out
	{pattern{space: oneByte, lo: 0xf1}, raises},
	{pattern{space: oneByte, lo: 0xf4}, raises},              // hlt
	{pattern{space: oneByte, lo: 0xfa, hi: 0xfb}, performed}, // cli, sti
	{pattern{space: oneByte, lo: 0xff, reg: r(2)}, indirectCall},
	{pattern{space: oneByte, lo: 0xff, reg: r(4)}, indirectJump},
	{pattern{space: oneByte, lo: 0xff, reg: r(3)}, farCall},
	{pattern{space: oneByte, lo: 0xff, reg: r(5)}, farJump},

	{pattern{space: map0F, lo: 0x00, reg: r(0, 1)}, performed},                                           // sldt, str
	{pattern{space: map0F, lo: 0x01, mod: inMemory, reg: r(0, 1)}, performed},                            // sgdt, sidt
	{pattern{space: map0F, lo: 0x01, reg: r(4)}, performed},                                              // smsw
	{pattern{space: map0F, lo: 0x00, reg: r(2, 3, 6)}, privileged},                                       // lldt, ltr, lkgs
	{pattern{space: map0F, lo: 0x01, mod: inMemory, reg: r(2, 3, 6, 7)}, privileged},                     // lgdt, lidt, lmsw, invlpg
	{pattern{space: map0F, lo: 0x01, mod: inRegister, reg: r(0)}, privileged},                            // VMX, pconfig, wrmsrns
	{pattern{space: map0F, lo: 0x01, pp: ppNone, mod: inRegister, reg: r(1)}, privileged},                // monitor, mwait, clac, stac, encls
	{pattern{space: map0F, lo: 0x01, pp: pp66, mod: inRegister, reg: r(1)}, privileged},                  // TDX
	{pattern{space: map0F, lo: 0x01, pp: ppF2 | ppF3, mod: inRegister, reg: r(1), rm: r(2)}, farReturn},  // erets, eretu
	{pattern{space: map0F, lo: 0x01, mod: inRegister, reg: r(2), rm: r(1)}, privileged},                  // xsetbv
	{pattern{space: map0F, lo: 0x01, mod: inRegister, reg: r(2), rm: r(7)}, enclave},                     // enclu
	{pattern{space: map0F, lo: 0x01, mod: inRegister, reg: r(3)}, privileged},                            // SVM
	{pattern{space: map0F, lo: 0x01, pp: ppF3, mod: inRegister, reg: r(5), rm: r(0)}, privileged},        // setssbsy
	{pattern{space: map0F, lo: 0x01, pp: ppF3, mod: inRegister, reg: r(5), rm: r(4)}, farReturn},         // uiret
	{pattern{space: map0F, lo: 0x01, mod: inRegister, reg: r(6)}, privileged},                            // lmsw
	{pattern{space: map0F, lo: 0x01, mod: inRegister, reg: r(7), rm: r(0, 6, 7)}, privileged},            // swapgs, invlpgb, tlbsync
	{pattern{space: map0F, lo: 0x01, pp: ppF2 | ppF3, mod: inRegister, reg: r(7), rm: r(5)}, privileged}, // rmpread, rmpquery
	{pattern{space: map0F, lo: 0x05}, systemCall},
	{pattern{space: map0F, lo: 0x06}, privileged},                       // clts
	{pattern{space: map0F, lo: 0x07}, farReturn},                        // sysret
	{pattern{space: map0F, lo: 0x08, hi: 0x09}, privileged},             // invd, wbinvd, wbnoinvd
	{pattern{space: map0F, lo: 0x0b}, raises},                           // ud2
	{pattern{space: map0F, lo: 0x20, hi: 0x23}, privileged},             // mov to and from control and debug registers
	{pattern{space: map0F, lo: 0x30}, privileged},                       // wrmsr
	{pattern{space: map0F, lo: 0x32}, privileged},                       // rdmsr
	{pattern{space: map0F, lo: 0x34}, systemCall},                       // sysenter
	{pattern{space: map0F, lo: 0x35}, farReturn},                        // sysexit
	{pattern{space: map0F, lo: 0x37}, privileged},                       // getsec
	{pattern{space: map0F, lo: 0x78, hi: 0x79, pp: ppNone}, privileged}, // vmread, vmwrite
	{pattern{space: map0F, lo: 0x80, hi: 0x8f}, condJump},
	{pattern{space: map0F, lo: 0xaa}, privileged},                                     // rsm
	{pattern{space: map0F, lo: 0xae, pp: ppF3, mod: inMemory, reg: r(6)}, privileged}, // clrssbsy
	{pattern{space: map0F, lo: 0xb9}, raises},                                         // ud1
	{pattern{space: map0F, lo: 0xc7, mod: inMemory, reg: r(3, 5, 6, 7)}, privileged},  // xrstors, xsaves, VMX
	{pattern{space: map0F, lo: 0xff}, raises},                                         // ud0

	{pattern{space: map0F38, lo: 0x80, hi: 0x82, pp: pp66}, privileged},        // invept, invvpid, invpcid
	{pattern{space: map0F38, lo: 0xdc, pp: ppF3, mod: inRegister}, privileged}, // loadiwkey
	{pattern{space: map0F38, lo: 0xf5, pp: pp66}, privileged},                  // wruss
	{pattern{space: map0F38, lo: 0xf8, pp: ppF3, mod: inMemory}, privileged},   // enqcmds
	{pattern{space: vexMap7, lo: 0xf6}, privileged},                            // rdmsr, wrmsrns
	{pattern{space: map0F3A, lo: 0xf0, pp: ppF3, mod: inRegister}, privileged}, // hreset
}
