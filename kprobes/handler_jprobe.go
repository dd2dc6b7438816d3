package kprobes

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
)

// Ptr is an address in the target, for the parameters of a Jprobe's Entry.
type Ptr = arch.Addr

// Jprobe is a probe at a function's entry whose handler gets the function's arguments, as
// the kernel's struct jprobe until Linux 4.14.
type Jprobe struct {
	// KP says where: Addr or SymbolName, at a function's entry, and Flags. Registration
	// overwrites its PreHandler; a PostHandler and a FaultHandler are called as those of
	// any probe. It counts hits and misses.
	KP Kprobe

	// Entry is a func without results. Its parameters are those of the probed function:
	//
	//	char, short, int, long, size_t, enum …   integers of the same size, of either sign
	//	pointers, references                     Ptr, or another integer of 8 bytes
	//	char *                                   string: up to 4096 bytes, "" for NULL; or Ptr
	//	_Bool, float, double, complex            bool, float32, float64, complex64, complex128
	//	struct by value                          a struct with such fields, or arrays of them
	//	long double, __int128, union, others     [N]byte of the same size
	//
	// and in front of them, if wanted, a *Regs. Of a variadic function they are the named
	// ones, of a method the first is this, by its address.
	//
	// Where debug information describes the function, it says where the arguments are, and
	// an Entry that does not fit is refused; Go's and Rust's functions then have Jprobes
	// too. Elsewhere the arguments are taken from where the System V ABI for x86-64
	// (§3.2.3) has a C compiler pass such parameters: then nothing checks them, arrays may
	// stand in structs only, and a function that returns a large struct has the address
	// for it as its first parameter.
	//
	// A string that is not in memory is cut where it can't be read; the FaultHandler is
	// asked before. A hit whose arguments themselves can't be read, the stack being
	// unreadable, is missed.
	//
	// When Entry returns, or calls JprobeReturn, the registers are as they were before.
	// If Entry has changed the first 64 bytes of the stack by its *Regs, these are
	// restored, too: the callee owns its arguments, and the probed function is still to
	// use them. Other changes of memory stay.
	Entry any

	body body
}

// body is an Entry that fits its function.
type body struct {
	entry     reflect.Value
	takesRegs bool
	proto     *symbols.Prototype
}

// RegisterJprobe places jp, as RegisterKprobe does, behind all Kprobes at the address: they
// run first, whenever they are registered. There can be one Jprobe at an address.
func (s *Session) RegisterJprobe(jp *Jprobe) error {
	return s.RegisterJprobes(s.life, []*Jprobe{jp})
}

// RegisterJprobes registers all of jps or, after an error, none. It ends early with ctx, as RegisterKprobes does.
func (s *Session) RegisterJprobes(ctx context.Context, jps []*Jprobe) error {
	kps := kprobesOf(jps)
	bodies := make([]body, len(jps))
	for i, jp := range jps {
		b, err := bodyOf(jp.Entry)
		if err == nil {
			b, err = s.registry.bind(ctx, b, &jp.KP)
		}
		if err != nil {
			return s.do(func() error { return probeError(&jp.KP, err) })
		}
		bodies[i] = b
	}
	return s.registry.registerAll(ctx, kps, func(i int) {
		jp := jps[i]
		jp.body, jp.KP.jprobe, jp.KP.PreHandler = bodies[i], jp, jp.handle
	})
}

// UnregisterJprobe removes jp, as UnregisterKprobe does.
func (s *Session) UnregisterJprobe(jp *Jprobe) error { return s.UnregisterKprobe(&jp.KP) }

// UnregisterJprobes removes all of jps that are registered.
func (s *Session) UnregisterJprobes(jps []*Jprobe) error { return s.UnregisterKprobes(kprobesOf(jps)) }

// EnableJprobe arms a disabled probe.
func (s *Session) EnableJprobe(jp *Jprobe) error { return s.EnableKprobe(&jp.KP) }

// DisableJprobe silences jp and keeps it registered.
func (s *Session) DisableJprobe(jp *Jprobe) error { return s.DisableKprobe(&jp.KP) }

func kprobesOf(jps []*Jprobe) []*Kprobe {
	kps := make([]*Kprobe, len(jps))
	for i, jp := range jps {
		kps[i] = &jp.KP
	}
	return kps
}

// JprobeReturn ends the body of a Jprobe from anywhere in it, as jprobe_return does; a body
// may as well return. It is a panic: a function in between that recovers has to pass it on.
func JprobeReturn() { panic(jprobeReturn{}) }

type jprobeReturn struct{}

func (jprobeReturn) Error() string { return "JprobeReturn was called outside of a Jprobe's Entry" }

// bodyOf checks what can be checked of an Entry without its function.
func bodyOf(entry any) (body, error) {
	v := reflect.ValueOf(entry)
	if v.Kind() != reflect.Func || v.IsNil() || v.Type().NumOut() > 0 {
		return body{}, fmt.Errorf("%w: it is %T", ErrEntryType, entry)
	}
	t := v.Type()
	return body{entry: v, takesRegs: t.NumIn() > 0 && t.In(0) == reflect.TypeFor[*Regs]()}, nil
}

// bind finds out how the function that kp asks for gets its arguments. It reads symbols.
func (rg *registry) bind(ctx context.Context, b body, kp *Kprobe) (body, error) {
	at, err := rg.locate(ctx, kp)
	switch {
	case rg.comes(kp, err):
		return b, nil
	case err != nil:
		return b, err
	}
	return b.bind(rg.s.table, at)
}

func (b body) bind(table *symbols.Table, at arch.Addr) (body, error) {
	t := b.entry.Type()
	var types []reflect.Type
	for i := range t.NumIn() {
		if i > 0 || !b.takesRegs {
			types = append(types, t.In(i))
		}
	}
	var err error
	if b.proto, err = table.Prototype(at, types); err != nil {
		return b, fmt.Errorf("%w: it is %s: %w", ErrEntryType, t, err)
	}
	return b, nil
}

// rebind is bind for another program, or a library that was loaded since, with a symbol of
// that name.
func (jp *Jprobe) rebind(table *symbols.Table, at arch.Addr) error {
	b, err := jp.body.bind(table, at)
	if err == nil {
		jp.body = b
	}
	return err
}

// handle is a Jprobe's PreHandler. It never has the instruction skipped.
func (jp *Jprobe) handle(kp *Kprobe, regs *Regs) int {
	regs.undo = &undo{regs: regs.Regs.Clone(), stack: regs.SP()}
	defer regs.undone()
	args, err := jp.body.proto.Arguments(regs, regs)
	if err != nil {
		kp.missed.add(MissArguments, 1)
		return 0
	}
	if jp.body.takesRegs {
		args = append([]reflect.Value{reflect.ValueOf(regs)}, args...)
	}
	jp.body.run(args)
	return 0
}

func (b body) run(args []reflect.Value) {
	defer func() {
		p := recover()
		if _, early := p.(jprobeReturn); p != nil && !early {
			panic(p) // a handler's, as any other
		}
	}()
	b.entry.Call(args)
}

// keptStack is how much of the stack a Jprobe's body can't change for good
// (MAX_STACK_SIZE, arch/x86/include/asm/kprobes.h).
const keptStack = 64

// undo is what a Jprobe's body will not have changed. Of the stack only what the body
// writes is put back: the caller's frame may be there, and other threads may write to it.
type undo struct {
	regs    arch.Regs
	stack   arch.Addr // of the bytes
	old     [keptStack]byte
	written [keptStack]bool
}

// note remembers what a write of n bytes to at will replace.
func (u *undo) note(m arch.Memory, at arch.Addr, n int) {
	start, end := max(at, u.stack), min(at.Add(int64(n)), u.stack.Add(keptStack))
	if n <= 0 || start >= end {
		return
	}
	old := make([]byte, end-start)
	if m.ReadMemory(start, old) != nil {
		return // then it can't be written either
	}
	for i, b := range old {
		if at := int(start-u.stack) + i; !u.written[at] {
			u.old[at], u.written[at] = b, true
		}
	}
}

// undone ends a Jprobe's body.
func (r *Regs) undone() {
	u := r.undo
	if u == nil {
		return
	}
	r.undo = nil
	r.Regs.CopyFrom(u.regs)
	for i := 0; i < keptStack; i++ {
		start := i
		for i < keptStack && u.written[i] {
			i++
		}
		if start == i {
			continue
		}
		if err := r.domain.space.WriteMemory(u.stack.Add(int64(start)), u.old[start:i]); err != nil {
			r.domain.session.warn("putting back the stack that a Jprobe has changed: %v", err)
		}
	}
}

// checkJprobe refuses what is known not to be a function's entry, and a second Jprobe. In
// Go's functions it moves behind the check of the stack, where the arguments still are.
func (lo *looks) checkJprobe(at arch.Addr, entry bool) (arch.Addr, error) {
	if _, known := lo.d.linker.symbols().Function(at); known {
		var err error
		if at, _, err = lo.checkEntry(at, entry); err != nil {
			return at, err
		}
	}
	st := lo.d.siteAt(at)
	if st != nil && slices.ContainsFunc(st.probes, func(kp *Kprobe) bool { return kp.jprobe != nil }) {
		return at, ErrJprobeExists
	}
	return at, nil
}
