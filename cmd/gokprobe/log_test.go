package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// saidBy is what the lines of log points say, without time and thread.
func saidBy(t *testing.T, out string) (all []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			t.Fatalf("a line says nothing: %q", line)
		}
		all = append(all, strings.Join(fields[2:], " "))
	}
	return all
}

// TestLogPointsSayWhatTheyAreToldTo, by their conditions, in the target and where threads stop.
func TestLogPointsSayWhatTheyAreToldTo(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	points := filepath.Join(t.TempDir(), "points")
	if err := os.WriteFile(points, []byte("# what the loop does\n\n  places.c:23 \"{{{i}}} of {n}: {own.name} {part} {&own.count}{len(own.name)}\" if own.weight == 7 && i >= 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, extra := range [][]string{{}, {"-no-optimize"}} {
		flags := append([]string{"-file", points}, append(extra, `places.c:14 "inner of {v} in {comm}, \"{symbol}\""`)...)
		l := start(t, append([]string{"log", "-p", pidOf(p)}, flags...)...)
		p.Do("work 4", "sum")
		got := saidBy(t, l.interrupt().stdout)
		if len(got) != 6 {
			t.Fatalf("%v: %q", flags, got)
		}
		for i, want := range []string{"places.c:14 inner of 0 in places, \"inner+0x", "places.c:14 inner of 1 ", "places.c:23 {2} of 4: own 14 0x", "places.c:14 inner of 2 "} {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%v: %q, not %q", flags, got[i], want)
			}
		}
		p.CheckClean()
	}
	l := start(t, "log", "-p", pidOf(p), "-format", "json", "-max-hits", "1", `places.c:23 "{i} {own}"`, `work%return "{ret} {duration}"`)
	p.Do("work 4", "sum")
	var messages []string
	for line := range strings.Lines(l.end().stdout) { // when both have said enough
		var h struct {
			Type, Message string
			Args          map[string]any
		}
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatal(err)
		}
		if h.Type == "hit" {
			messages = append(messages, h.Message)
		}
		if own, _ := h.Args["own"].(map[string]any); h.Type == "hit" && strings.HasPrefix(h.Message, "0 ") && own["weight"] != 7.0 {
			t.Errorf("the values are %v", h.Args)
		}
	}
	if len(messages) != 2 || messages[0] != `0 {count: 4, weight: 7, name: "own"}` || !strings.HasPrefix(messages[1], "51 ") || !strings.HasSuffix(messages[1], "s") {
		t.Errorf("the messages are %q", messages)
	}
	p.CheckClean()
	p.Quit()
}

// TestLogPointsOfACommand see it from its beginning, and what it has outside of functions; it keeps its output and its status.
func TestLogPointsOfACommand(t *testing.T) {
	bin := testprog.Build(t, "places", "-O0")
	dir := t.TempDir()
	points := filepath.Join(dir, "points")
	if err := os.WriteFile(points, []byte("main \"begins {errno}\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-o", filepath.Join(dir, "a"), `main "begins {errno}"`, "--", bin}, {"-o", filepath.Join(dir, "b"), "-file", points, "--", bin}} {
		r := gokprobe(t, append([]string{"log"}, args...)...)
		said, err := os.ReadFile(args[1])
		if err != nil || r.status != 0 || !strings.HasSuffix(string(said), "begins 0\n") || !strings.Contains(r.stdout, "ready") {
			t.Errorf("%q: status %d: %q %q, %s, %v", args, r.status, said, r.stdout, r.stderr, err)
		}
	}
	for _, args := range [][]string{{`main "x"`, "--"}, {"-p", "1", `main "x"`, "--", bin}, {`main "x"`}, {"--", bin}} {
		if r := gokprobe(t, append([]string{"log"}, args...)...); r.status != 2 || strings.Contains(r.stdout, "ready") {
			t.Errorf("%q: status %d: %s", args, r.status, r.stderr)
		}
	}
}

// TestLinesBeyondTheRateAreCounted, and not printed.
func TestLinesBeyondTheRateAreCounted(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	l := start(t, "log", "-p", pidOf(p), "-rate", "2", `inner "{v}"`)
	const calls = 200
	p.Do("work 200", "sum")
	r := l.interrupt()
	printed := strings.Count(r.stdout, "\n")
	if printed < 2 || printed == calls || !strings.Contains(r.stderr, "lines not printed, since they were more than -rate 2 a second") || !strings.Contains(r.stderr, " 200 ") {
		t.Errorf("%d lines; %s", printed, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

// TestMistakesInLogPointsAreShown where they are, and leave nothing armed.
func TestMistakesInLogPointsAreShown(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	for text, want := range map[string][]string{
		``:                               {"LOG_NO_TEXT", "quotes"},
		`places.c:23`:                    {"LOG_NO_TEXT"},
		`places.c:23 "{i"`:               {"LOG_BRACE", "\n               ^"},
		`places.c:23 "{own.wait}"`:       {"NO_BTF_FIELD", "did you mean weight? there are count, weight, name"},
		`places.c:23 "{parts}"`:          {"NO_BTFARG", "did you mean part? there are "},
		`places.c:23 "{i}" if parts > 2`: {"FIELD_NOT_FOUND"},
		`places.c:23 "{i}" if i > 2 && part != 12345 && own.weigth == 2`: {"NO_BTF_FIELD", "did you mean weight? there are count", "own.weigth == 2\n"},
		`places.c:23 "{i}" if own.x > 2`:                                 {"condition of the log point", "NO_BTF_FIELD", "there are count"},
		`places.c:23 "{own.name[99]}"`:                                   {"NO_ELEMENT"},
		`nowhere "{i}"`:                                                  {"unknown symbol"},
		`work "{n}" -rate 3`:                                             {"LOG_BEHIND_TEXT"},
	} {
		r := gokprobe(t, "log", "-p", pidOf(p), text)
		for _, words := range want {
			if r.status == 0 || !strings.Contains(r.stderr, words) || r.stdout != "" {
				t.Errorf("%s: status %d: %s, without %q", text, r.status, r.stderr, words)
			}
		}
		p.CheckClean()
	}
	for _, args := range [][]string{{`work "{n}"`, "-rate", "3"}, {"-rate", "-1", `work "x"`}, {"-max-hits", "0", `work "x"`}, {}, {"-file", "/nowhere"}} {
		if r := gokprobe(t, append([]string{"log", "-p", pidOf(p)}, args...)...); r.status != 2 {
			t.Errorf("%q: status %d: %s", args, r.status, r.stderr)
		}
	}
	p.CheckClean()
	p.Quit()
}
