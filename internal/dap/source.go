package dap

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// substituted is a path of the client's as debug information has it, by the first rule that fits.
func substituted(name string, rules []remap) string {
	for _, r := range rules {
		if rest, ok := below(name, r.From); ok {
			return path.Join(r.To, rest)
		}
	}
	return name
}

// restored is a path of debug information as the client has it.
func restored(file string, rules []remap) string {
	for _, r := range rules {
		if rest, ok := below(file, r.To); ok {
			return path.Join(r.From, rest)
		}
	}
	return file
}

// below is what of a path is behind a directory; ok tells that it is in there.
func below(name, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return rest, ok && dir != "" && (rest == "" || rest[0] == '/')
}

// likeliest is the file whose path has most of the last components of name.
func likeliest(files []string, name string) (string, error) {
	var best []string
	most := 0
	for _, f := range files {
		switch n := commonEnd(f, name); {
		case f == name:
			return f, nil
		case n > most:
			best, most = []string{f}, n
		case n == most && n > 0:
			best = append(best, f)
		}
	}
	switch len(best) {
	case 0:
		return "", fmt.Errorf("nothing in the process was built from a file %s, or it has no debug information", escape.Quote(path.Base(name)))
	case 1:
		return best[0], nil
	}
	return "", fmt.Errorf(`%d files of the process may be meant, %s and %s among them: tell which by "substitutePath" in the arguments of attach`,
		len(best), escape.Quote(best[0]), escape.Quote(best[1]))
}

// commonEnd is how many last components two paths share.
func commonEnd(a, b string) (n int) {
	for a, b = path.Clean(a), path.Clean(b); path.Base(a) == path.Base(b); n++ {
		nextA, nextB := path.Dir(a), path.Dir(b)
		if nextA == a || nextB == b || a == "." {
			return n
		}
		a, b = nextA, nextB
	}
	return n
}

// clientSource is a file of debug information as the client may know it.
func (s *session) clientSource(file string) *protocol.Source {
	if file == "" {
		return nil
	}
	name := escape.Line(restored(file, s.target.remaps))
	if known, ok := s.clients.Load(file); ok {
		name = known.(string)
	}
	return &protocol.Source{Name: path.Base(name), Path: name}
}

// parseHitCondition reads which hits are wanted, by their number from 1: N and ==N the one, >N, >=N, <N, <=N, %N every Nth. Without a text all are.
func parseHitCondition(text string) (due func(n uint64) bool, err error) {
	s := strings.TrimSpace(text)
	if s == "" {
		return func(uint64) bool { return true }, nil
	}
	digits := strings.TrimLeft(s, "<>=%")
	op := s[:len(s)-len(digits)]
	k, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
	if err == nil {
		switch op {
		case "", "=", "==":
			return func(n uint64) bool { return n == k }, nil
		case ">":
			return func(n uint64) bool { return n > k }, nil
		case ">=":
			return func(n uint64) bool { return n >= k }, nil
		case "<":
			return func(n uint64) bool { return n < k }, nil
		case "<=":
			return func(n uint64) bool { return n <= k }, nil
		case "%":
			if k > 0 {
				return func(n uint64) bool { return n%k == 0 }, nil
			}
		}
	}
	return nil, fmt.Errorf("hit condition %s is none: write N, ==N, >N, >=N, <N, <=N, or %%N for every Nth hit", escape.Quote(text))
}

// sentence is an error as one line. A mistake in a text is told with where it is.
func sentence(err error) string {
	text := err.Error()
	if e := new(caret.Error); errors.As(err, &e) {
		if e.Column > 0 && e.Column < len(e.Command) {
			text += fmt.Sprintf(", at %s", escape.Quote(e.Command[e.Column:]))
		}
		if len(e.Known) > 0 {
			const most = 10
			text += "; there are " + strings.Join(e.Known[:min(most, len(e.Known))], ", ")
		}
	}
	return escape.Line(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}
