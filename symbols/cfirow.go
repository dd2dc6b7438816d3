package symbols

import (
	"encoding/binary"

	"github.com/go-delve/delve/pkg/dwarf/frame"
	"github.com/go-delve/delve/pkg/dwarf/op"

	"github.com/gokprobe/gokprobe/arch"
)

// unwindRow is the call-frame information of one address: how to compute the
// caller's registers.
type unwindRow struct {
	cfa      frame.DWRule
	rules    [dwCount]frame.DWRule
	isSignal bool
}

// row returns the rules for link-time address v, nil if none cover it. Rows are
// kept: a probe unwinds through the same few addresses again and again.
func (img *image) row(v uint64) *unwindRow {
	if r, ok := img.frames.rows.get(v); ok {
		return r
	}
	r, cost := img.makeRow(v), uint64(0)
	if r != nil {
		cost = 1024 // bytes: a rule for each register
	}
	img.frames.rows.put(v, r, cost, img.f.kept)
	return r
}

func (img *image) makeRow(v uint64) (row *unwindRow) {
	f := img.frame(v)
	if f == nil || !isPlausibleCFI(f.CIE.InitialInstructions) || !isPlausibleCFI(f.Instructions) {
		return nil
	}
	// Delve's interpreter panics on damaged instructions.
	defer func() {
		if recover() != nil {
			row = nil
		}
	}()
	ctx, err := f.EstablishFrame(v)
	if err != nil {
		return nil
	}
	row = &unwindRow{cfa: ctx.CFA, isSignal: f.isSignal}
	for reg, rule := range ctx.Regs {
		if reg < dwCount {
			row.rules[reg] = rule
		}
	}
	if _, ok := ctx.Regs[dwIP]; !ok && ctx.RetAddrReg == dwIP {
		return nil
	}
	return row
}

// apply computes the caller's state. Its ok is false if the rules say that
// there is no caller, or if memory can't be read.
func (row *unwindRow) apply(st *frameState, stack *stackReader) callerState {
	c := callerState{frameState: *st, isSignal: row.isSignal}
	c.isCall = !row.isSignal
	base, ok := row.frameAddress(st, stack)
	if !ok {
		return c
	}
	c.cfa = arch.Addr(base)
	c.reg[dwSP] = base
	for i := range row.rules {
		// "Undefined" is also what the tables leave of a callee-saved register
		// that they restored. For the return address it means the outermost frame.
		rule := &row.rules[i]
		if rule.Rule == frame.RuleUndefined || rule.Rule == frame.RuleSameVal {
			if i == dwIP {
				return c
			}
			continue
		}
		if c.reg[i], ok = ruleValue(rule, base, st, stack); !ok {
			return c
		}
	}
	c.ok = true
	return c
}

// ruleValue is the caller's value of a register; base is the frame address.
func ruleValue(rule *frame.DWRule, base uint64, st *frameState, stack *stackReader) (uint64, bool) {
	switch rule.Rule {
	case frame.RuleOffset:
		return stack.word(arch.Addr(base).Add(rule.Offset))
	case frame.RuleValOffset:
		return base + uint64(rule.Offset), true
	case frame.RuleRegister:
		if rule.Reg < dwCount {
			return st.reg[rule.Reg], true
		}
	case frame.RuleExpression:
		if at, ok := evaluate(rule.Expression, st, stack, &base); ok {
			return stack.word(arch.Addr(at))
		}
	case frame.RuleValExpression:
		return evaluate(rule.Expression, st, stack, &base)
	}
	return 0, false
}

// frameAddress is the canonical frame address.
func (row *unwindRow) frameAddress(st *frameState, stack *stackReader) (uint64, bool) {
	switch row.cfa.Rule {
	case frame.RuleCFA:
		if row.cfa.Reg >= dwCount {
			return 0, false
		}
		return st.reg[row.cfa.Reg] + uint64(row.cfa.Offset), true
	case frame.RuleExpression, frame.RuleValExpression:
		return evaluate(row.cfa.Expression, st, stack, nil)
	}
	return 0, false
}

// evaluate runs a DWARF expression; push, if set, is on its stack at the start.
func evaluate(expr []byte, st *frameState, stack *stackReader, push *uint64) (v uint64, ok bool) {
	defer func() {
		if recover() != nil { // of Delve's interpreter, on damaged input
			v, ok = 0, false
		}
	}()
	regs := make([]*op.DwarfRegister, dwCount)
	for i := range regs {
		regs[i] = op.DwarfRegisterFromUint64(st.reg[i])
	}
	if push != nil {
		const opConst8u = 0x0e
		expr = append(binary.LittleEndian.AppendUint64([]byte{opConst8u}, *push), expr...)
	}
	dr := op.NewDwarfRegisters(0, regs, binary.LittleEndian, dwIP, dwSP, dwFP, 0)
	read := func(p []byte, at uint64) (int, error) {
		if err := stack.mem.ReadMemory(arch.Addr(at), p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	top, pieces, err := op.ExecuteStackProgram(*dr, expr, 8, read)
	return uint64(top), err == nil && pieces == nil
}
