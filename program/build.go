package program

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Action is what a program does at a hit: CountHit, AddToHistogram, or WriteRecord.
type Action interface {
	emit(b *builder) error
}

// CountHit counts in a counter of its own with some shards.
type CountHit struct{ Shards int }

// AddToHistogram adds Value to a histogram of its own. A value that can't be read is not added.
type AddToHistogram struct {
	Map   Map // Log2 or Linear
	Value Expr
}

// WriteRecord writes a record into Ring. If there is no room, it counts the loss in the
// map behind the ring, a counter with one shard.
type WriteRecord struct {
	Ring  Map
	Items []Item
}

// Item is one part of a record: a number of 8 bytes, or bytes.
type Item struct {
	Name  string
	Value Expr // the number, or the address of the bytes
	Kind  ItemKind
	Max   int  // bytes that are set aside, unless it is a number
	Len   Expr // of CountedBytes: how many elements, unsigned
	Elem  int  // of CountedBytes: bytes of one; 0 is 1
}

// ItemKind is how an item's Value is used.
type ItemKind uint8

const (
	Number       ItemKind = iota // it is the item
	Bytes                        // Max bytes are there
	CountedBytes                 // Len elements of Elem bytes are there; the ones that fit into Max are read
	String                       // bytes up to the first zero are there, Max of them at most with it
	Text                         // like String; if unreadable memory comes before a zero, the bytes up to it
	Array                        // like Bytes; if not all of them can be read, those in the first page
)

// Build makes a program that does the actions one after the other at hits that meet
// filter. Maps are in the order of the actions; Fields describes the items, in their
// order. A field whose item may fault has an Err, the offset of a word: 0 or -Efault
// (as for bytes at address 0). For CountedBytes and String it is the length if that is
// positive (of a String with its zero, of a Text with its zero if it has one). For an
// Array it is the length if not all of it could be read.
//
// The state of Sequences, if there are any, is the last map. regs is Program.Regs. The program has not been checked.
func Build(name string, id uint32, regs []string, filter Cond, actions ...Action) (*Program, error) {
	b := &builder{p: &Program{Name: name, ID: id, Regs: regs}}
	b.add(asm.Mov.Reg(asm.R6, asm.R1)) // the context
	if err := b.cond(filter, "end", false); err != nil {
		return nil, fmt.Errorf("program %s: filter: %w", name, err)
	}
	for _, a := range actions {
		if err := a.emit(b); err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	b.label("end")
	b.add(asm.Return())
	return b.finish()
}

// Decision makes a program that decides (Program.Decides): the handler runs at hits that meet c.
// Its only map, if c has Sequences, is their state. regs is Program.Regs. The program has not
// been checked.
func Decision(name string, regs []string, c Cond) (*Program, error) {
	b := &builder{p: &Program{Name: name, Regs: regs, Decides: true}}
	b.add(asm.Mov.Reg(asm.R6, asm.R1))
	if err := b.cond(c, "no", false); err != nil {
		return nil, fmt.Errorf("program %s: %w", name, err)
	}
	b.add(asm.Mov.Imm(asm.R0, 1), asm.Return())
	b.label("no")
	b.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return b.finish()
}

// finish completes the program.
func (b *builder) finish() (*Program, error) {
	if b.cells > 0 {
		m, err := b.newMap(Map{Kind: State, Cells: b.cells})
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", b.p.Name, err)
		}
		for i := range b.p.Insns {
			if ins := &b.p.Insns[i]; ins.IsLoadFromMap() && ins.Constant == stateToBe {
				ins.Constant = int64(m)
			}
		}
	}
	b.prune()
	return b.p, nil
}

// Where is a program that does what p does where the register reg holds v, and nothing elsewhere.
func (p Program) Where(reg string, v int32) Program {
	p.Regs = append(slices.Clone(p.Regs), reg)
	otherwise := asm.JEq.Imm(asm.R0, v, "")
	otherwise.Offset = 2 // behind the return
	p.Insns = append(asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, int16(8*(len(p.Regs)-1)), asm.DWord), otherwise, asm.Mov.Imm(asm.R0, 0), asm.Return(),
	}, p.Insns...)
	return p
}

// prune takes out the instructions that are never reached, as behind conditions that are
// always met.
func (b *builder) prune() {
	reached := make([]bool, len(b.p.Insns)+1)
	labels := make(map[string]bool)
	reached[0] = true
	for i, ins := range b.p.Insns {
		if reached[i] = reached[i] || labels[ins.Symbol()]; !reached[i] {
			continue
		}
		if ref := ins.Reference(); ref != "" {
			labels[ref] = true
		}
		op := ins.OpCode.JumpOp()
		reached[i+1] = op != asm.Ja && op != asm.Exit
	}
	i := -1
	b.p.Insns = slices.DeleteFunc(b.p.Insns, func(asm.Instruction) bool { i++; return !reached[i] })
}

// builder appends instructions. r6 is the context and r7 the record; r8 and r9 keep operands
// during calls.
type builder struct {
	p      *Program
	labels int
	next   string  // label of the next instruction
	fields []Field // of the record that is being written
	cells  int     // of the state
}

func (b *builder) add(all ...asm.Instruction) {
	for _, ins := range all {
		if b.next != "" {
			ins, b.next = ins.WithSymbol(b.next), ""
		}
		b.p.Insns = append(b.p.Insns, ins)
	}
}

// newLabel is a name that nothing has.
func (b *builder) newLabel() string {
	b.labels++
	return fmt.Sprintf("l%d", b.labels)
}

// label gives the next instruction a name. If it has one already, the two are made one.
func (b *builder) label(name string) {
	if b.next == "" {
		b.next = name
		return
	}
	for i := range b.p.Insns {
		if b.p.Insns[i].Reference() == b.next {
			b.p.Insns[i] = b.p.Insns[i].WithReference(name)
		}
	}
	b.next = name
}

// newMap adds a map to the program and returns its index.
func (b *builder) newMap(m Map) (int, error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	b.p.Maps = append(b.p.Maps, m)
	return len(b.p.Maps) - 1, nil
}

func (a CountHit) emit(b *builder) error {
	m, err := b.newMap(Map{Kind: Counter, Shards: a.Shards})
	if err != nil {
		return err
	}
	b.add(asm.LoadMapPtr(asm.R1, m), Count.Call())
	return nil
}

func (a AddToHistogram) emit(b *builder) error {
	fn, ok := map[MapKind]asm.BuiltinFunc{Log2: HistLog2, Linear: HistLinear}[a.Map.Kind]
	if !ok {
		return fmt.Errorf("a %s is no histogram", a.Map.Kind)
	}
	m, err := b.newMap(a.Map)
	if err != nil {
		return err
	}
	skip := b.newLabel()
	if err := b.expr(a.Value, asm.R2, skip); err != nil {
		return err
	}
	b.add(asm.LoadMapPtr(asm.R1, m), fn.Call())
	b.label(skip)
	return nil
}

func (a WriteRecord) emit(b *builder) error {
	ring, err := b.newMap(a.Ring)
	if err != nil {
		return err
	}
	lost, _ := b.newMap(Map{Kind: Counter})
	size := b.layout(a.Items)
	if size == 0 || size > MaxRecord {
		return fmt.Errorf("a record of %d bytes: want 1 to %d", size, MaxRecord)
	}
	skip := b.newLabel()
	b.add(
		asm.LoadMapPtr(asm.R1, ring),
		asm.Mov.Imm(asm.R2, int32(size)),
		asm.LoadMapPtr(asm.R3, lost),
		RingReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, skip),
		asm.Mov.Reg(asm.R7, asm.R0),
	)
	all := b.p.Fields[len(b.p.Fields)-len(a.Items):]
	for i, item := range a.Items {
		b.fields = all[:i]
		if err := b.item(item, all[i]); err != nil {
			return fmt.Errorf("%s: %w", item.Name, err)
		}
	}
	b.fields = nil
	b.add(asm.Mov.Reg(asm.R1, asm.R7), RingCommit.Call())
	b.label(skip)
	return nil
}

// layout appends the fields of a record: words first, in their order, then bytes. It returns
// their size.
func (b *builder) layout(items []Item) int {
	size := 0
	fields := make([]Field, len(items))
	for i, item := range items {
		f := &fields[i]
		*f = Field{Name: item.Name, Off: size, Size: item.Max, Err: -1}
		if item.Kind == Number {
			f.Size = 8
			size += 8
		}
		if item.Kind != Number || item.Value.mayFault() {
			f.Err = size
			size += 8
		}
	}
	for i, item := range items {
		if item.Kind != Number {
			fields[i].Off = size
			size += (max(item.Max, 0) + 7) &^ 7
		}
	}
	b.p.Fields = slices.Concat(b.p.Fields, fields)
	return size
}

// item writes an item into the record.
func (b *builder) item(item Item, f Field) error {
	fault, done := b.newLabel(), b.newLabel()
	if item.Kind == Number {
		if err := b.expr(item.Value, asm.R0, fault); err != nil {
			return err
		}
		b.add(asm.StoreMem(asm.R7, int16(f.Off), asm.R0, asm.DWord))
		if item.Value.mayFault() {
			b.onFault(f, fault, done)
		}
		return nil
	}
	if item.Max < 1 {
		return errors.New("no room for the bytes")
	}
	if err := b.bytes(item, f, fault); err != nil {
		return err
	}
	b.add(asm.StoreMem(asm.R7, int16(f.Err), asm.R0, asm.DWord))
	b.onFault(f, fault, done)
	return nil
}

// onFault is where a step towards an item's value goes that reads a bad address.
func (b *builder) onFault(f Field, fault, done string) {
	b.add(asm.Ja.Label(done))
	b.label(fault)
	b.add(asm.Mov.Imm(asm.R2, -Efault), asm.StoreMem(asm.R7, int16(f.Err), asm.R2, asm.DWord))
	b.label(done)
}

// bytes reads an item's bytes and leaves the result in r0.
func (b *builder) bytes(item Item, f Field, fault string) error {
	switch item.Kind {
	case CountedBytes:
		if err := b.count(item, fault); err != nil {
			return err
		}
		fallthrough
	case Bytes, String:
		if err := b.address(item, asm.R3, fault); err != nil {
			return err
		}
		if item.Kind == CountedBytes {
			b.add(asm.Mov.Reg(asm.R4, asm.R8))
		}
		b.read(map[ItemKind]asm.BuiltinFunc{Bytes: Read, CountedBytes: ReadN, String: ReadString}[item.Kind], item, f)
		return nil
	case Text:
		return b.firstPage(ReadString, item, f, fault)
	case Array:
		return b.firstPage(Read, item, f, fault)
	}
	return fmt.Errorf("no kind of item %d", item.Kind)
}

// address finds out where an item's bytes are. At 0 there is nothing, which is often asked for.
func (b *builder) address(item Item, r asm.Register, fault string) error {
	err := b.expr(item.Value, r, fault)
	b.add(asm.JEq.Imm(r, 0, fault))
	return err
}

// read calls one of the helpers that read bytes into the record.
func (b *builder) read(fn asm.BuiltinFunc, item Item, f Field) {
	b.add(
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, int32(f.Off)),
		asm.Mov.Imm(asm.R2, int32(item.Max)),
		fn.Call(),
	)
}

// count finds out into r8 how many bytes an item's elements are, no more than there is room for.
func (b *builder) count(item Item, fault string) error {
	if err := b.expr(item.Len, asm.R8, fault); err != nil {
		return err
	}
	if item.Elem <= 1 {
		return nil
	}
	few, most := b.newLabel(), int32(item.Max/item.Elem)
	b.add(asm.JLE.Imm(asm.R8, most, few), asm.Mov.Imm(asm.R8, most))
	b.label(few)
	b.add(asm.Mul.Imm(asm.R8, int32(item.Elem)))
	return nil
}

// firstPage reads with fn, or, if that can't be done, what there is in the first page.
func (b *builder) firstPage(fn asm.BuiltinFunc, item Item, f Field, fault string) error {
	if err := b.address(item, asm.R8, fault); err != nil {
		return err
	}
	whole := b.newLabel()
	b.add(asm.Mov.Reg(asm.R3, asm.R8))
	b.read(fn, item, f)
	b.add(
		asm.JNE.Imm(asm.R0, -Efault, whole),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.And.Imm(asm.R8, page-1),
		asm.Mov.Imm(asm.R4, page),
		asm.Sub.Reg(asm.R4, asm.R8),
	)
	b.read(ReadN, item, f)
	b.label(whole)
	return nil
}
