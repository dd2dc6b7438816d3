package symbols

import (
	"debug/dwarf"
	"strings"
)

// cxxClass finds out whether C++ passes and returns a class by reference: whether it is
// non-trivial for the purposes of calls (Itanium C++ ABI §1.1). Some compilers, such as
// GCC, do not write that into the debug information, but it follows from the class's members.
type cxxClass struct {
	r            *typeReader
	entry        *dwarf.Entry
	isNontrivial bool
	copies       int // copy and move constructors that are declared
	deleted      int // how many of them can't be used
}

// member looks at one member function of the class.
func (c *cxxClass) member(f *dwarf.Entry) {
	name, _ := f.Val(dwarf.AttrName).(string)
	class, _ := c.entry.Val(dwarf.AttrName).(string)
	class, _, _ = strings.Cut(class, "<")
	if v, _ := f.Val(dwarf.AttrVirtuality).(int64); v != 0 {
		c.isNontrivial = true // there is a pointer to the table of virtual functions
	}
	if artificial, _ := f.Val(dwarf.AttrArtificial).(bool); artificial {
		return // what the compiler makes is trivial if all members and bases are
	}
	const inClass = 1 // DW_DEFAULTED_in_class
	defaulted, _ := f.Val(dwarf.AttrDefaulted).(int64)
	deleted, _ := f.Val(dwarf.AttrDeleted).(bool)
	written := defaulted != inClass && !deleted
	switch {
	case strings.HasPrefix(name, "~"):
		c.isNontrivial = c.isNontrivial || written
	case name == class && c.copiesClass(f):
		c.copies++
		c.isNontrivial = c.isNontrivial || written
		if deleted {
			c.deleted++
		}
	}
}

// isByReference reports whether the class goes by reference. It is called after all member
// functions were read.
func (c *cxxClass) isByReference() bool {
	return c.isNontrivial || c.copies > 0 && c.deleted == c.copies
}

// copiesClass reports whether a constructor's one parameter is a reference to its
// class.
func (c *cxxClass) copiesClass(constructor *dwarf.Entry) bool {
	rd := c.r.d.entriesAt(constructor.Offset)
	e := rd.next()
	if e == nil {
		return false
	}
	var params []*dwarf.Entry
	rd.children(e, func(p *dwarf.Entry) {
		if artificial, _ := p.Val(dwarf.AttrArtificial).(bool); p.Tag == dwarf.TagFormalParameter && !artificial {
			params = append(params, p)
		}
	})
	if len(params) != 1 {
		return false
	}
	ref := c.target(params[0])
	if ref == nil || ref.Tag != dwarf.TagReferenceType && ref.Tag != dwarf.TagRvalueReferenceType {
		return false
	}
	to := c.target(ref)
	if to != nil && (to.Tag == dwarf.TagConstType || to.Tag == dwarf.TagVolatileType) {
		to = c.target(to)
	}
	return to != nil && to.Offset == c.entry.Offset
}

// target is the entry of e's type.
func (c *cxxClass) target(e *dwarf.Entry) *dwarf.Entry {
	off, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
	if !ok {
		return nil
	}
	return c.r.d.entryAt(off)
}
