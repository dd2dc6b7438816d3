package script

import (
	"fmt"
	"io"
	"strings"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// WriteTAP writes a Result as the Test Anything Protocol, version 14
// (https://testanything.org/tap-version-14-specification.html): a test point for each case,
// what went wrong in a YAML block below it.
func (r Result) WriteTAP(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "TAP version 14\n1..%d\n", len(r.Cases))
	for i, c := range r.Cases {
		verdict := "ok"
		if c.Failed > 0 {
			verdict = "not ok"
		}
		fmt.Fprintf(&b, "%s %d - %s\n", verdict, i+1, tapText(c.Name))
		if c.Failed > 0 {
			c.writeYAML(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeYAML writes why a case has failed. Strings are in JSON's form, which is YAML's too.
func (c *Case) writeYAML(b *strings.Builder) {
	fmt.Fprintf(b, "  ---\n  severity: fail\n  failed: %d\n  checks: %d\n", c.Failed, c.Checks)
	if c.Place != "" {
		fmt.Fprintf(b, "  at: %s\n", quoted(c.Place))
	}
	if c.Phase != "" {
		fmt.Fprintf(b, "  phase: %s\n", quoted(c.Phase))
	}
	b.WriteString("  problems:\n")
	for _, p := range c.Problems {
		fmt.Fprintf(b, "    - message: %s\n", quoted(p.Error()))
		if picture := p.Picture(); picture != "" {
			fmt.Fprintf(b, "      source: %s\n", quoted(picture))
		}
	}
	b.WriteString("  ...\n")
}

// tapText is a description: on one line, with # and \ escaped, since a # begins a directive.
func tapText(s string) string {
	s = escape.Line(strings.NewReplacer("\n", " ", "\t", " ").Replace(s))
	return strings.NewReplacer(`\`, `\\`, `#`, `\#`).Replace(s)
}
