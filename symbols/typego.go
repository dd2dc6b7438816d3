package symbols

import "debug/dwarf"

// Attributes of Go's DWARF (src/cmd/internal/dwarf/dwarf.go).
const (
	attrGoKind = dwarf.Attr(0x2900)
	attrGoKey  = dwarf.Attr(0x2901)
	attrGoElem = dwarf.Attr(0x2902)
)

// fillGo gives Go's built-in types their kinds (reflect.Kind in DW_AT_go_kind).
func (r *typeReader) fillGo(t *dtype, e *dwarf.Entry) {
	if r.lang != langGo {
		return
	}
	kind, _ := e.Val(attrGoKind).(int64)
	const kChan, kFunc, kInterface, kMap, kSlice, kString = 18, 19, 20, 21, 23, 24
	switch kind {
	case kChan, kFunc, kMap:
		t.kind, t.size, t.align, t.hasLength = typeGoPointer, 8, 8, kind != kFunc
		key, ok1 := e.Val(attrGoKey).(dwarf.Offset)
		if elem, ok2 := e.Val(attrGoElem).(dwarf.Offset); kind == kMap && ok1 && ok2 {
			t.params = []*dtype{r.at(key), r.at(elem)}
		}
	case kInterface:
		t.kind, t.size, t.align = typeGoInterface, 16, 8
	case kSlice:
		t.kind, t.align = typeGoSlice, 8
		if off, ok := e.Val(attrGoElem).(dwarf.Offset); ok {
			t.elem = r.at(off)
		}
	case kString:
		t.kind, t.align = typeGoString, 8
	}
	if t.kind == typeFunc {
		t.kind, t.size, t.align = typeGoPointer, 8, 8
	}
}
