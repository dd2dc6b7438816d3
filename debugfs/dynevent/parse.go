package dynevent

import (
	"errors"
	"math"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// MaxActive is how many calls in flight a line may ask to follow (KRETPROBE_MAXACTIVE_MAX).
const MaxActive = 4096

// Context is what parsing has to ask. Its functions are called while a line is parsed,
// with the parts that are parsed so far; all may be nil.
type Context struct {
	// Register finds a register by the name behind %, and tells how package arch calls it. nil: host.RegisterName.
	Register func(name string) (canonical string, ok bool)
	// AtEntry tells whether d probes the first instruction of a function, where $argN are. nil: all symbols without
	// an offset are functions, no address and no offset of a file is one.
	AtEntry func(d *Definition) bool
	// Place tells why the place of d, a Kprobe, can't be probed. Its errors are best made by d.Error, with PartPlace.
	Place func(d *Definition) error
	// File tells whether the file of a Uprobe is a regular one. Its error's errno is that of the line.
	File func(path string) (regular bool, err error)
	// Data tells whether there is a variable or function that @SYM may be about, [MOD:]SYM. nil: believed.
	Data func(symbol string) bool
	// Function finds the function that d probes, or of which it follows calls, in debug information.
	// nil: NOSUP_BTFARG; an error: NO_BTF_ENTRY.
	Function func(d *Definition) (arg.Function, error)
}

// ParseKprobe parses a line of kprobe_events. Errors are *caret.Error, but for a line that is no command at
// all: then they only match EINVAL.
func ParseKprobe(line string, c Context) (*Definition, error) {
	return parse(&Definition{words: strings.FieldsFunc(line, isBlank)}, "-", c)
}

// ParseUprobe is ParseKprobe for a line of uprobe_events.
func ParseUprobe(line string, c Context) (*Definition, error) {
	return parse(&Definition{Family: Uprobe, words: strings.FieldsFunc(line, isBlank)}, "-", c)
}

// ParseDynamic parses a line of dynamic_events: any of the others' lines, where a Delete is about both families
// and may be a definition behind an exclamation mark.
func ParseDynamic(line string, c Context) (*Definition, error) {
	d := &Definition{Family: Either, words: strings.FieldsFunc(line, isBlank)}
	if len(d.words) > 0 && d.words[0][0] != '-' && d.words[0][0] != '!' {
		d.Family = Kprobe
		if len(d.words) > 1 && isUprobe(d.words[1]) {
			d.Family = Uprobe
		}
	}
	return parse(d, "-!", c)
}

// parse reads d.words; a first word that begins with one of the letters of deletes deletes.
func parse(d *Definition, deletes string, c Context) (*Definition, error) {
	if len(d.words) == 0 {
		return nil, refused("an empty line")
	}
	run := d.define
	if strings.IndexByte(deletes, d.words[0][0]) >= 0 {
		run = d.parseDelete
	}
	if err := run(c); err != nil {
		return nil, err
	}
	return d, nil
}

// define reads a definition.
func (d *Definition) define(c Context) error {
	name, err := d.parseHead()
	if err != nil {
		return err
	}
	switch place := d.words[1]; {
	case d.Family == Kprobe && isUprobe(place):
		return refused("%s is an offset of a file", place)
	case d.Family == Uprobe && !isUprobe(place):
		return refused("%s is not PATH:OFFSET", place)
	case d.Family == Kprobe:
		err = d.parseKprobe(name, c)
	default:
		err = d.parseUprobe(name, c)
	}
	if err != nil {
		return err
	}
	return d.parseArgs(c)
}

// isUprobe tells whether a place is PATH:OFFSET.
func isUprobe(place string) bool {
	n := strings.LastIndexByte(place, ':')
	return strings.IndexByte(place, '/') >= 0 && n >= 0 && n+1 < len(place) && lex.IsDigit(place[n+1])
}

func (d *Definition) parseDelete(Context) error {
	d.Kind = Delete
	letter, name, ok := strings.Cut(d.words[0], ":")
	if !ok || letter[0] == '-' && letter != "-" {
		return refused("%q deletes nothing: it has to be -:[GRP/][EVENT]", d.words[0])
	}
	d.Group, d.Event, d.GroupGiven = strings.Cut(name, "/")
	if !d.GroupGiven {
		d.Group, d.Event = "", name
	}
	d.EventGiven = d.Event != ""
	if !d.GroupGiven && !d.EventGiven {
		return refused("%q names no event", d.words[0])
	}
	d.Rest = d.words[1:]
	d.Exact = len(d.Rest) > 0
	return nil
}

// parseHead reads the first word up to the name, which it returns with its colon.
func (d *Definition) parseHead() (name string, err error) {
	if len(d.words) < 2 {
		return "", refused("a definition has at least two words")
	}
	head := d.words[0]
	switch head[0] {
	case 'p':
	case 'r':
		d.Kind = Return
	default:
		return "", refused("%q is neither p nor r nor -", head)
	}
	if n := strings.IndexByte(head, ':'); n >= 0 {
		head, name = head[:n], head[n:]
	}
	number := head[1:]
	if number == "" {
		return name, nil
	}
	if !lex.IsDigit(number[0]) || d.Family == Uprobe {
		return "", refused("%q behind %q is no name, which has a colon in front", number, head[:1])
	}
	if f := d.parseMaxActive(number); f != nil {
		return "", f.In(d.Family.System(), d.words, 0)
	}
	return name, nil
}

func (d *Definition) parseMaxActive(s string) *caret.Fault {
	v, ok := lex.Number(s, 0)
	switch {
	case d.Kind != Return:
		return caret.At("BAD_MAXACT_TYPE", 1)
	case !ok || v == 0 || v > math.MaxUint32:
		return caret.At("BAD_MAXACT", 1)
	case v > MaxActive:
		return caret.At("MAXACT_TOO_BIG", 1)
	}
	d.MaxActive, d.HasMax = int(v), true
	return nil
}

// parseKprobe reads place and name.
func (d *Definition) parseKprobe(name string, c Context) error {
	if f := d.parsePlace(d.words[1]); f != nil {
		return f.In(d.Family.System(), d.words, 1)
	}
	if c.Place != nil {
		if err := c.Place(d); err != nil {
			return err
		}
	}
	if d.Kind == Return && d.Symbol != "" && d.Offset != 0 && !c.atEntry(d) {
		return d.Error("BAD_RETPROBE", PartPlace)
	}
	return d.parseName(name)
}

// parseUprobe reads place and name.
func (d *Definition) parseUprobe(name string, c Context) error {
	place := d.words[1]
	n := strings.LastIndexByte(place, ':')
	d.Path = place[:n]
	if c.File != nil {
		regular, err := c.File(d.Path)
		switch {
		case err != nil:
			return d.ErrorAs("FILE_NOT_FOUND", PartPlace, errnoOf(err))
		case !regular:
			return d.Error("NO_REGULAR_FILE", PartPlace)
		}
	}
	if f := d.parseOffset(place, n+1); f != nil {
		return f.In(d.Family.System(), d.words, 1)
	}
	return d.parseName(name)
}

func errnoOf(err error) (errno syscall.Errno) {
	errors.As(err, &errno)
	return errno
}

// parseName reads [:NAME]; missing parts are made up.
func (d *Definition) parseName(name string) error {
	d.Group = d.Family.Group()
	if name != "" {
		if f := d.setName(name[1:], len(d.words[0])-len(name)+1); f != nil {
			return f.In(d.Family.System(), d.words, 0)
		}
	}
	if !d.EventGiven {
		d.Event = d.autoName()
	}
	return nil
}

func (c Context) atEntry(d *Definition) bool {
	if c.AtEntry != nil {
		return c.AtEntry(d)
	}
	return d.Family == Kprobe && d.Symbol != "" && d.Offset == 0
}

// scope is what the arguments of d may be about.
func (c Context) scope(d *Definition) arg.Scope {
	s := arg.Scope{
		Uprobe: d.Family == Uprobe, Return: d.Kind == Return, Register: c.Register, Data: c.Data,
		AtEntry: func() bool { return c.atEntry(d) },
	}
	if c.Function != nil {
		s.Function = func() (arg.Function, error) { return c.Function(d) }
	}
	return s
}

// parseArgs reads all words behind the place.
func (d *Definition) parseArgs(c Context) error {
	const first = 2
	args, from, f, at := arg.ParseAll(d.words[first:], c.scope(d))
	if f != nil {
		return f.In(d.Family.System(), d.words, first+at)
	}
	d.Args = args
	for _, n := range from {
		d.argWords = append(d.argWords, first+n)
	}
	return nil
}
