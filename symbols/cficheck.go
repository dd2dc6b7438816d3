package symbols

// Limits of the call-frame instructions of one function. Delve's interpreter copies all rules whenever a state is remembered.
const (
	mostRemembered = 1 << 10 // times
	highestRule    = 0xff    // DWARF number of a register; those of x86-64 end before 130
	longestExpr    = 1 << 10 // bytes
)

// isPlausibleCFI reports whether call-frame instructions (DWARF 5 §6.4.2) are safe to interpret: they are whole, and within the limits.
func isPlausibleCFI(ops []byte) bool {
	c := &lineCursor{b: ops}
	remembered := 0
	for len(c.b) > 0 && !c.isBad {
		op := c.uint(1)
		if op == 0x0a { // remember_state
			if remembered++; remembered > mostRemembered {
				return false
			}
		}
		if !c.frameOperands(op) {
			return false
		}
	}
	return !c.isBad
}

// frameOperands skips the operands of one instruction. It returns false if no compiler would write them.
func (c *lineCursor) frameOperands(op uint64) bool {
	switch op & 0xc0 {
	case 0x40, 0xc0: // advance_loc, restore
		return true
	case 0x80: // offset
		c.uleb()
		return true
	}
	switch op {
	case 0x00, 0x0a, 0x0b: // nop, remember_state, restore_state
	case 0x01: // set_loc
		c.skip(8)
	case 0x02, 0x03, 0x04: // advance_loc1, 2, 4
		c.skip(1 << (op - 2))
	case 0x05, 0x11, 0x14, 0x15, 0x0c, 0x12: // offset_extended, …_sf, val_offset, …_sf; def_cfa, …_sf
		return c.register() && c.leb()
	case 0x09: // register
		from := c.register()
		return c.register() && from
	case 0x06, 0x07, 0x08, 0x0d: // restore_extended, undefined, same_value; def_cfa_register
		return c.register()
	case 0x0e, 0x13, 0x2e: // def_cfa_offset, …_sf; GNU_args_size
		return c.leb()
	case 0x0f: // def_cfa_expression
		return c.expression()
	case 0x10, 0x16: // expression, val_expression
		return c.register() && c.expression()
	default:
		return false
	}
	return true
}

func (c *lineCursor) leb() bool { c.uleb(); return !c.isBad }

func (c *lineCursor) register() bool { return c.uleb() <= highestRule && !c.isBad }

// expression skips an expression. It returns false for operations with branches or sizes, which could make an interpreter loop or read far.
func (c *lineCursor) expression() bool {
	n := c.uleb()
	if c.isBad || n > uint64(len(c.b)) || n > longestExpr {
		return false
	}
	e := &lineCursor{b: c.b[:n]}
	c.skip(int(n))
	for len(e.b) > 0 {
		switch op := e.uint(1); {
		case op == 0x06, op >= 0x12 && op <= 0x14, op >= 0x16 && op <= 0x22, op >= 0x24 && op <= 0x27, op >= 0x29 && op <= 0x2e,
			op >= 0x30 && op <= 0x6f, op == 0x96, op == 0x9c: // stack, arithmetic, comparison, literal, register
		case op == 0x08, op == 0x09, op == 0x15, op == 0x94: // const1, pick, deref_size
			e.skip(1)
		case op == 0x0a, op == 0x0b:
			e.skip(2)
		case op == 0x0c, op == 0x0d:
			e.skip(4)
		case op == 0x03, op == 0x0e, op == 0x0f: // addr, const8
			e.skip(8)
		case op == 0x10, op == 0x11, op == 0x23, op >= 0x70 && op <= 0x90: // constu, consts, plus_uconst, breg, regx
			e.uleb()
		case op == 0x92: // bregx
			e.uleb()
			e.uleb()
		default:
			return false
		}
		if e.isBad {
			return false
		}
	}
	return true
}
