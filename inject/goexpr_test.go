package inject

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/symbols"
)

func TestWhatIsNoExpressionIsTheTextOfAnError(t *testing.T) {
	for text, isText := range map[string]bool{
		"disk full": true, "timeout": true, "x-y": true, "read(3): bad": true, "ENOENTX": true, "a/b c": true, "E": true, "5": true, "é": true, "a\nb": true,
		"ENOENT": false, "io.EOF": false, "database/sql.ErrNoRows": false, "gopkg.in/yaml.v3.ErrX": false, `"5"`: false, "`raw`": false,
		"nil": false, "&a.B{}": false, "b.C{1}": false, "a.B(5)": false, `errors.New("x")`: false, "(io.EOF)": false,
	} {
		x, err := errorExpression(text)
		if err != nil {
			t.Fatal(err)
		}
		s, isString := x.str()
		if got := isString && s == text; got != isText {
			t.Errorf("%q is text: %v", text, got)
		}
	}
}

func TestWhatBeginsAsAnExpressionMustBeOne(t *testing.T) {
	for text, column := range map[string]int{
		"&fs.PathError{": 15, `&fs.PathError{Op: "open", Err ENOENT}`: 31, "PathError{": 11, `"abc`: 1, "`abc": 1, `"a" and "b"`: 5, "os.Open(3: bad": 10,
		`&io/fs.PathError{Op: ]}`: 22, `&io/fs.PathError{Err: a/b/c.D, Op: ]}`: 36, `&é/fs.PathError{`: 0, `fmt.Errorf("é: %w", ]`: 21, " fmt.Errorf(": 13,
	} {
		_, err := errorExpression(text)
		var e *SyntaxError
		switch {
		case column == 0 && err == nil: // it does not look like one
		case !errors.As(err, &e) || e.Column != column || e.Message == "":
			t.Errorf("%s: %v", text, err)
		default:
			if lines := strings.Split(e.Picture(), "\n"); len(lines) != 3 || len([]rune(lines[1])) != 2+column || lines[1][len(lines[1])-1] != '^' {
				t.Errorf("%s:\n%s", text, e.Picture())
			}
		}
	}
}

func TestNamesHaveFullPaths(t *testing.T) {
	for text, want := range map[string]string{
		"ENOENT": "ENOENT", "io.EOF": "io.EOF", "io/fs.ErrNotExist": "io/fs.ErrNotExist", "a.b-c/d/e.F": "a.b-c/d/e.F", "(x)": "x",
		"gopkg.in/yaml.v3.ErrX": "gopkg.in/yaml.v3.ErrX", "1+2": "", "*fs.PathError": "*fs.PathError",
	} {
		x, err := parseExpression(text)
		if err != nil || x.name() != want {
			t.Errorf("%s is %q, %v, want %q", text, x.name(), err, want)
		}
	}
	x, _ := parseExpression(`&io/fs.PathError{Op: "a/b.c", Err: x/y.Z}`)
	typ, lit := x.literal()
	if typ != "*io/fs.PathError" || len(lit.Elts) != 2 {
		t.Errorf("%s, %v", typ, lit)
	}
}

func TestErrnosByName(t *testing.T) {
	for name, want := range map[string]unix.Errno{
		"ENOENT": unix.ENOENT, "syscall.EIO": unix.EIO, "golang.org/x/sys/unix.EPERM": unix.EPERM, "EHWPOISON": unix.EHWPOISON, "EWOULDBLOCK": unix.EAGAIN,
		"EOF": 0, "io.EOF": 0, "E": 0, "": 0, "enoent": 0,
	} {
		if got, ok := errnoNamed(name); got != want || ok != (want != 0) {
			t.Errorf("%s is %d, %v", name, got, ok)
		}
	}
}

func TestWholeNumbers(t *testing.T) {
	for _, c := range []struct {
		text   string
		bits   int
		signed bool
		want   uint64
		ok     bool
	}{
		{"0", 8, true, 0, true}, {"127", 8, true, 127, true}, {"128", 8, true, 0, false}, {"0x80", 8, true, 0x80, true}, {"0x100", 8, true, 0, false},
		{"-128", 8, true, ^uint64(127), true}, {"-129", 8, true, 0, false}, {"255", 8, false, 255, true}, {"256", 8, false, 0, false},
		{"-1", 8, false, ^uint64(0), true}, {"18446744073709551615", 64, false, ^uint64(0), true}, {"18446744073709551615", 64, true, 0, false},
		{"0xffffffffffffffff", 64, true, ^uint64(0), true}, {"-9223372036854775808", 64, true, 1 << 63, true}, {"2.5", 64, true, 0, false}, {"", 64, true, 0, false},
	} {
		if v, err := wholeNumber(c.text, c.bits, c.signed); v != c.want || (err == nil) != c.ok {
			t.Errorf("%q in %d bits, signed %v: %#x, %v", c.text, c.bits, c.signed, v, err)
		}
	}
}

// FuzzResults compiles any text for functions of any result, without a process.
func FuzzResults(f *testing.F) {
	table, err := symbols.OpenFile(testprog.Build(f, "goerrors"))
	if err != nil {
		f.Fatal(err)
	}
	var at []symbols.Location
	for _, name := range []string{"os.OpenFile", "main.Many", "main.Spilled", "main.Number", "main.Concrete", "main.NetError", "main.NoError", "main.Nothing"} {
		loc, err := table.Resolve(context.Background(), name)
		if err != nil {
			f.Fatal(err)
		}
		at = append(at, loc[0])
	}
	for _, s := range []string{"ENOENT", "io.EOF", "x", `&fs.PathError{Op: "open", Path: name, Err: ENOENT}`, `fmt.Errorf("a: %w", EIO)`, "main.Level(5)", "a/b.C{}", "[]byte(`x`)",
		"-5", "0x7f", "2.5", "nil", "'a'", "errors.New(errors.New)", "&main.Code{Inner: main.Code{}}"} {
		f.Add(s, "a", "1")
	}
	f.Fuzz(func(t *testing.T, error, name, value string) {
		for _, loc := range at {
			for _, r := range []Results{{Error: error}, {Value: value}, {Named: map[string]string{name: error}}, {Error: error, Value: value}} {
				tr, err := r.compile(table, loc.Addr, false)
				if (tr == nil) == (err == nil) || err != nil && err.Error() == "" {
					t.Errorf("%+v: %v, %v", r, tr, err)
				}
			}
		}
	})
}
