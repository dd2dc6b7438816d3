package fault

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseProbability reads a share of calls: a percentage "10%" or "0.1%", a fraction
// "1/1000", or a number with a point or an exponent "0.1" or "1e-3". A whole number is
// percents, as in the kernel's files: "10" is 10%, and "1" is 1%.
func ParseProbability(s string) (float64, error) {
	p, err := parseProbability(strings.TrimSpace(s))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a probability, such as 10%%, 0.1 or 1/1000", s)
	case !(p >= 0 && p <= 1):
		return 0, fmt.Errorf("the probability %s is not between 0%% and 100%%", s)
	}
	return p, nil
}

func parseProbability(s string) (float64, error) {
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		if strings.ContainsAny(percent, "eE") {
			p, err := parseDecimal(percent)
			return p / 100, err
		}
		return parseDecimal(percent + "e-2") // and not divided: rounded once
	}
	if over, under, ok := strings.Cut(s, "/"); ok {
		n, nerr := strconv.ParseUint(over, 10, 53)
		d, derr := strconv.ParseUint(under, 10, 53)
		if err := errors.Join(nerr, derr); err != nil || d == 0 {
			return 0, errors.New("not a fraction")
		}
		return float64(n) / float64(d), nil
	}
	if strings.ContainsAny(s, ".eE") {
		return parseDecimal(s)
	}
	n, err := strconv.ParseUint(s, 10, 53)
	return float64(n) / 100, err
}

// parseDecimal reads a decimal number; what else Go takes as one is refused.
func parseDecimal(s string) (float64, error) {
	if strings.Trim(s, "0123456789.eE+-") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.ParseFloat(s, 64)
}

// FormatProbability returns a text that ParseProbability reads as exactly p.
func FormatProbability(p float64) string {
	for digits := range 9 {
		s := strconv.FormatFloat(p*100, 'f', digits, 64) + "%"
		if q, err := ParseProbability(s); err == nil && q == p {
			return s
		}
	}
	return strconv.FormatFloat(p, 'e', -1, 64)
}

// formatPercent is FormatProbability, but whole percents are as the kernel's.
func formatPercent(p float64) string {
	s := FormatProbability(p)
	if whole := strings.TrimSuffix(s, "%"); whole != s && strings.Trim(whole, "0123456789") == "" {
		return whole
	}
	return s
}

// parseUint reads a number of so many bits, as the kernel's kstrtoull does with base 0.
func parseUint(s string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 0, bits)
	switch {
	case strings.Contains(s, "_"), errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("%q is not a number from 0", s)
	case err != nil:
		return 0, fmt.Errorf("%s is too large", s)
	}
	return n, nil
}

// parseInt reads a number that may be negative.
func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 0, 64)
	switch {
	case strings.Contains(s, "_"), errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("%q is not a number", s)
	case err != nil || n == math.MinInt64:
		return 0, fmt.Errorf("%s is out of range", s)
	}
	return n, nil
}

// parseBool reads what the kernel's kstrtobool reads.
func parseBool(s string) (bool, error) {
	lower := strings.ToLower(s)
	switch {
	case strings.HasPrefix(lower, "on"):
		return true, nil
	case strings.HasPrefix(lower, "of"):
		return false, nil
	case lower == "" || lower[0] == 'o':
	case strings.Contains("yt1", lower[:1]):
		return true, nil
	case strings.Contains("nf0", lower[:1]):
		return false, nil
	}
	return false, fmt.Errorf("%q is neither Y nor N", s)
}

// ParseAttr reads the kernel's boot option "interval,probability,space,times", which may
// be followed, or replaced, by attributes by name: "1,10%,0,-1,when=3+2,seed=7". Other
// attributes are those of Default.
func ParseAttr(s string) (Attr, error) {
	a := Default()
	items := strings.Split(strings.TrimSpace(s), ",")
	if !strings.Contains(items[0], "=") {
		if err := a.setFour(items[:min(4, len(items))]); err != nil {
			return Attr{}, err
		}
		items = items[4:]
	}
	for _, item := range items {
		name, value, ok := strings.Cut(item, "=")
		if !ok || name == "attr" {
			return Attr{}, fmt.Errorf("%q is not NAME=VALUE; only such attributes may follow interval,probability,space,times", item)
		}
		if err := a.Set(name, value); err != nil {
			return Attr{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return a, a.Check()
}

// setFour sets what the kernel's boot option has (setup_fault_attr).
func (a *Attr) setFour(items []string) error {
	if len(items) != 4 {
		return fmt.Errorf("%q is not interval,probability,space,times: four numbers", strings.Join(items, ","))
	}
	for i, name := range []string{"interval", "probability", "space", "times"} {
		if err := a.Set(name, items[i]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// String returns the text that ParseAttr reads as a.
func (a Attr) String() string {
	s := []string{a.Get("interval"), formatPercent(a.Probability), a.Get("space"), a.Get("times")}
	a.required()
	initial := Default()
	for i := range names {
		n := &names[i]
		if n.Name == "interval" || n.Name == "probability" || n.Name == "space" || n.Name == "times" {
			continue
		}
		if v := n.get(&a); v != n.get(&initial) {
			s = append(s, n.Name+"="+v)
		}
	}
	return strings.Join(s, ",")
}

// Message is the kernel's line for a failure (fail_dump), of the capability name and
// with a as it was before the failure.
func (a Attr) Message(name string) string {
	return fmt.Sprintf("FAULT_INJECTION: forcing a failure.\nname %s, interval %d, probability %s, space %d, times %d",
		name, a.Interval, formatPercent(a.Probability), a.Space, a.Times)
}
