package dynevent

import (
	"path"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// MaxName is how many bytes the name of a group or an event may have (MAX_EVENT_NAME_LEN, less a zero).
const MaxName = 63

// setName reads [GRP/][EVENT], which begins at a column of the command's first word. A dot separates as well.
func (d *Definition) setName(name string, column int) *caret.Fault {
	d.groupColumn, d.eventColumn = column, column
	event := name
	if n := separator(name); n >= 0 {
		d.Group, d.GroupGiven, event = name[:n], true, name[n+1:]
		d.eventColumn += n + 1
		switch {
		case n == 0:
			return caret.At("NO_GROUP_NAME", column)
		case n > MaxName:
			return caret.At("GROUP_TOO_LONG", column)
		case !lex.IsIdentifier(d.Group, "-"):
			return caret.At("BAD_GROUP_NAME", column)
		case event == "":
			return nil
		}
	}
	switch {
	case event == "":
		return caret.At("NO_EVENT_NAME", d.eventColumn)
	case len(event) > MaxName:
		return caret.At("EVENT_TOO_LONG", d.eventColumn)
	case !lex.IsIdentifier(event, ""):
		return caret.At("BAD_EVENT_NAME", d.eventColumn)
	}
	d.Event, d.EventGiven = event, true
	return nil
}

// separator returns the index of the character between group and event, -1 if there is
// none.
func separator(name string) int {
	if n := strings.IndexByte(name, '/'); n >= 0 {
		return n
	}
	return strings.IndexByte(name, '.')
}

// autoName is the name of an event whose line has none.
func (d *Definition) autoName() string {
	letter := string("pr"[d.Kind])
	switch {
	case d.Family == Uprobe: // p for returns too
		base := path.Base(d.Path)
		if n := strings.IndexAny(base, ".-_"); n >= 0 {
			base = base[:n]
		}
		return identifier("p_" + base + "_0x" + strconv.FormatUint(d.FileOffset, 16))
	case d.Symbol == "":
		return identifier(letter + "_0x" + strconv.FormatUint(d.Addr, 16))
	}
	return identifier(letter + "_" + d.Spec() + "_" + strconv.FormatUint(d.Offset, 10))
}

// identifier makes a name of s: characters that are not allowed become _, and a long s
// is cut.
func identifier(s string) string {
	name := []byte(s[:min(len(s), MaxName)])
	for i, c := range name {
		if !lex.IsLetter(c) && !lex.IsDigit(c) {
			name[i] = '_'
		}
	}
	return string(name)
}
