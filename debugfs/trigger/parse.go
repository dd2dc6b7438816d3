package trigger

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/filter"
)

// maxCommand is how long a command may be (kernel: a page, with the zero).
const maxCommand = 4095

// Parse reads a command that was written to e's trigger file:
//
//	[!]NAME[:SYSTEM:EVENT][:COUNT] [if FILTER]
//	[!]hist:keys=FIELD[,FIELD…][:vals=FIELD…][:sort=FIELD…][:size=N][:NAME=EXPRESSION…]… [if FILTER]
//
// Errors are *caret.Error. Other events, their histograms' variables and synthetic events are known only to
// a Table.
func Parse(text string, e Event) (*Trigger, error) { return NewTable(nobody{}).parse(text, e) }

func (t *Table) parse(text string, e Event) (*Trigger, error) {
	text = strings.TrimSpace(text)
	if len(text) > maxCommand {
		return nil, complain(e, text[:64]+"…", "TRIGGER_TOO_LONG", "")
	}
	word, rest := text, ""
	if i := strings.IndexAny(text, ": \t"); i >= 0 {
		word, rest = text[:i], strings.TrimLeft(text[i+1:], " \t")
	}
	name, remove := strings.CutPrefix(word, "!")
	kind := slices.Index(names[:], name)
	if kind < 0 {
		return nil, complain(e, text, "UNKNOWN_TRIGGER", name)
	}
	tr := &Trigger{Kind: Kind(kind), Remove: remove, command: text}
	tr.count.Store(Unlimited)
	var err error
	if tr.Kind == Histogram {
		tr.command = histPrefix + rest
		err = tr.parseHist(rest, e, t)
	} else {
		err = tr.parseSimple(rest, e)
	}
	if err != nil {
		return nil, err
	}
	return tr, nil
}

// parseSimple reads what stands behind the name of all commands but hist.
func (t *Trigger) parseSimple(rest string, e Event) error {
	param, condition := "", rest
	if t.Kind.targets() || rest != "" && isDigit(rest[0]) {
		i := strings.IndexAny(rest, " \t")
		if i < 0 {
			i = len(rest)
		}
		param, condition = rest[:i], strings.TrimLeft(rest[i:], " \t")
	}
	counted := param != ""
	if t.Kind.targets() {
		var ok bool
		if t.System, param, ok = strings.Cut(param, ":"); !ok || t.System == "" {
			return complain(e, t.command, "NO_TARGET", rest)
		}
		if t.Event, param, counted = strings.Cut(param, ":"); t.Event == "" {
			return complain(e, t.command, "NO_TARGET", rest)
		}
	}
	if t.Remove {
		return nil // neither count nor filter decide which one goes
	}
	if counted {
		number, _, _ := strings.Cut(param, ":")
		n, ok := parseNumber(number)
		if !ok || n > math.MaxInt64 {
			return complain(e, t.command, "BAD_COUNT", param)
		}
		t.count.Store(int64(n))
	}
	return t.parseFilter(condition, e)
}

// parseFilter reads "if FILTER", or nothing.
func (t *Trigger) parseFilter(condition string, e Event) error {
	if condition == "" {
		return nil
	}
	rest, ok := strings.CutPrefix(condition, "if")
	if !ok || rest == "" || !isBlank(rest[0]) {
		return complain(e, t.command, "NO_IF", condition)
	}
	f, err := filter.Parse(strings.TrimSpace(rest), e.Fields)
	if err != nil {
		return err
	}
	t.Filter = f
	return nil
}

// splitFilter takes a hist command apart at " if ". What stands in front may hold blanks.
func splitFilter(s string) (params, condition string) {
	for from := 0; ; {
		i := strings.Index(s[from:], "if")
		if i < 0 {
			return s, ""
		}
		i += from
		if i > 0 && isBlank(s[i-1]) && i+2 < len(s) && isBlank(s[i+2]) {
			return strings.TrimSpace(s[:i]), s[i:]
		}
		from = i + 1
	}
}

// parseNumber is kstrtoull of base 0: decimal, 0x hexadecimal, 0 octal.
func parseNumber(s string) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"), strings.HasPrefix(s, "0X"):
		s, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		base = 8
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isBlank(c byte) bool { return c == ' ' || c == '\t' }
