package script

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// judged is the result of a scenario in which all sorts of things go wrong.
func judged(t *testing.T) Result {
	t.Helper()
	sc, _, e := loaded(t, `
	expect(1 == 1, "good")
	phase("second")
	for i in range(25):
		expect(i < 20, "<bad> & # \\ \"quoted\" \x01 ü 日本")
	expect(True)
	def broken():
		return {}["x"]
	test("a test that is right", lambda: expect(True))
	test("a test that is not", lambda: expect(False, "no"))
	test("a test that breaks", broken)
	counter("hits # 1").add(3)
	fail("by hand")
	at_end(broken)
	`)
	if e != nil {
		t.Fatal(e)
	}
	return sc.Finish(Ending{})
}

// TestJUnitReportsAreReadByOthers: Python's parser reads what encoding/xml has written.
func TestJUnitReportsAreReadByOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.xml")
	var b bytes.Buffer
	if err := judged(t).WriteJUnit(&b, "scenario"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "-c", `
import sys, json, xml.etree.ElementTree as E
root = E.parse(sys.argv[1]).getroot()
assert root.tag == "testsuites", root.tag
suite, = root
cases = suite.findall("testcase")
assert int(suite.get("tests")) == len(cases)
assert int(suite.get("failures")) == sum(c.find("failure") is not None for c in cases)
assert int(suite.get("errors")) == sum(c.find("error") is not None for c in cases)
for c in cases: assert c.get("classname") and float(c.get("time")) >= 0
json.dump([[c.get("name"), [e.tag for e in c], [e.get("message") for e in c], [e.text for e in c]] for c in cases] +
          [{p.get("name"): p.get("value") for p in suite.find("properties")}], sys.stdout)
`, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, b.String())
	}
	var cases []any
	if err := json.Unmarshal(out, &cases); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"[the scenario runs without an error [error] [key \"x\" not in dict]",
		"[good [] [] []]",
		"[<bad> & # \\ \"quoted\" \\x01 ü 日本 [failure] [<bad> & # \\ \"quoted\" \\x01 ü 日本]",
		"[expectation: expect(True) [] [] []]",
		"[by hand [failure] [by hand]",
		"[a test that is right [] [] []]", "[a test that is not [failure] [no]", "[a test that breaks [error] [key \"x\" not in dict]",
		"map[counter hits # 1:3 seed:1]",
	}
	if len(cases) != len(want) {
		t.Fatalf("%d cases: %v", len(cases), cases)
	}
	for i, c := range cases {
		if got := fmt.Sprint(c); !strings.HasPrefix(got, want[i]) {
			t.Errorf("case %d is %s\nwant    %s", i, got, want[i])
		}
	}
}

// TestTAPReportsAreReadByOthers: a parser of version 14, written from its specification,
// finds the plan, all test points, and YAML that is one.
func TestTAPReportsAreReadByOthers(t *testing.T) {
	var b strings.Builder
	if err := judged(t).WriteTAP(&b); err != nil {
		t.Fatal(err)
	}
	points := parseTAP(t, b.String())
	want := []string{
		"not ok the scenario runs without an error", "ok good", `not ok <bad> & # \ "quoted" \x01 ü 日本`,
		"ok expectation: expect(True)", "not ok by hand", "ok a test that is right", "not ok a test that is not", "not ok a test that breaks",
	}
	for i, p := range points {
		if i >= len(want) || p.verdict+" "+p.description != want[i] {
			t.Errorf("point %d is %s %q", i+1, p.verdict, p.description)
		}
		if (p.verdict == "ok") != (p.yaml == "") {
			t.Errorf("point %d: %s with %q", i+1, p.verdict, p.yaml)
		}
	}
	if len(points) != len(want) {
		t.Errorf("%d points, want %d", len(points), len(want))
	}
	bad := points[2]
	for _, part := range []string{"failed: 5\n", "checks: 25\n", "at: \"x.star:4\"\n", "phase: \"second\"\n"} {
		if !strings.Contains(bad.yaml, part) {
			t.Errorf("%q is not in\n%s", part, bad.yaml)
		}
	}
}

type tapPoint struct{ verdict, description, yaml string }

// parseTAP reads a document as producers must write it: the version, a plan that all test
// points follow in their order, and YAML blocks, indented by two, between --- and ....
func parseTAP(t *testing.T, text string) []tapPoint {
	t.Helper()
	in := bufio.NewScanner(strings.NewReader(text))
	next := func() (string, bool) { ok := in.Scan(); return in.Text(), ok }
	if line, _ := next(); line != "TAP version 14" {
		t.Fatalf("begins with %q", line)
	}
	plan, _ := next()
	last, err := strconv.Atoi(strings.TrimPrefix(plan, "1.."))
	if err != nil {
		t.Fatalf("the plan is %q", plan)
	}
	point := regexp.MustCompile(`^(ok|not ok) (\d+) - ((?:[^#\\]|\\[#\\])*)$`)
	var all []tapPoint
	for line, ok := next(); ok; line, ok = next() {
		if line == "  ---" && len(all) > 0 && all[len(all)-1].yaml == "" {
			for line, ok = next(); line != "  ..."; line, ok = next() {
				if !ok || !strings.HasPrefix(line, "  ") {
					t.Fatalf("in YAML: %q", line)
				}
				all[len(all)-1].yaml += line + "\n"
			}
			continue
		}
		m := point.FindStringSubmatch(line)
		if m == nil || m[2] != strconv.Itoa(len(all)+1) {
			t.Fatalf("%q is no test point %d", line, len(all)+1)
		}
		all = append(all, tapPoint{m[1], strings.NewReplacer(`\#`, "#", `\\`, `\`).Replace(m[3]), ""})
	}
	if len(all) != last {
		t.Errorf("planned are %d, %d came", last, len(all))
	}
	return all
}

// TestRandomIsTheSequenceOfItsSeed.
func TestRandomIsTheSequenceOfItsSeed(t *testing.T) {
	play := func(seed uint64) string {
		_, heard, e := loaded(t, `
		print([random.int(-2, 2) for i in range(200)], random.seed)
		print([random.random() for i in range(5)], [random.chance(0.5) for i in range(20)], [random.choice("abc") for i in range(20)])
		for i in range(1000):
			expect(random.int(-2, 2) in (-2, -1, 0, 1, 2) and random.random() < 1 and not random.chance(0) and random.chance(1))
		random.int(-9223372036854775808, 9223372036854775807)
		`, func(o *Options) { o.Seed = seed })
		if e != nil || len(heard.problems) > 0 {
			t.Fatal(e, heard.problems)
		}
		return strings.Join(heard.printed, "\n")
	}
	a, b, c := play(5), play(5), play(6)
	if a != b || a == c {
		t.Error("the seed does not say what comes")
	}
	for _, n := range []string{"-2", "-1", "0", "1", "2"} {
		if !strings.Contains(a, " "+n+",") {
			t.Errorf("%s never comes", n)
		}
	}
}

func TestPhasesAndWarningsGoToTheDefaultLog(t *testing.T) {
	said := testprog.Slogged(t)
	sc, err := Load(write(t, "scenario.star", `phase("first")`), Options{Session: newStand(t)})
	if err != nil {
		t.Fatal(err)
	}
	sc.warn("that is so")
	if got := said(); !slices.Equal(got, []string{"INFO phase: first", "WARN that is so"}) {
		t.Errorf("%q", got)
	}
}
