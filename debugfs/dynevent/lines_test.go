package dynevent

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
)

func TestLines(t *testing.T) {
	long := "p " + strings.Repeat("x", MaxLine-2)
	for _, c := range []struct {
		data string
		want []string
		ok   bool
	}{
		{"", nil, true},
		{"\n\n \t\n", nil, true},
		{"p a\nr b\n", []string{"p a", "r b"}, true},
		{"  p\ta   b \r\n# nothing\np c # rest\n#p d", []string{"p a b", "p c"}, true},
		{"p main.f#1", []string{"p main.f#1"}, true},
		{"p a;p b", []string{"p a;p b"}, true},
		{long + "\n" + long, []string{long, long}, true},
		{"p a\n" + long + "x\np b", []string{"p a"}, false},
		{"p a\np b\x00\np c", []string{"p a"}, false},
		{"p \xff\xfe", nil, false},
		{"p über", []string{"p über"}, true},
		{strings.Repeat("x", 64<<20), nil, false},
	} {
		var got []string
		ok := true
		for line, err := range Lines([]byte(c.data)) {
			if err != nil {
				ok = false
				if !errors.Is(err, syscall.EINVAL) || line != "" {
					t.Errorf("%q, %v", line, err)
				}
				continue
			}
			got = append(got, line)
		}
		if !slices.Equal(got, c.want) || ok != c.ok {
			t.Errorf("%.40q: %q, %v", c.data, got, ok)
		}
	}
}

func TestBootParameter(t *testing.T) {
	var got []string
	for line, err := range Boot("p,vfs_read,$arg1;r:x,kfree;;") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if want := []string{"p vfs_read $arg1", "r:x kfree"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for range Lines([]byte("p a\np b")) {
		break
	}
}

func FuzzParse(f *testing.F) {
	for _, r := range refusals {
		f.Add(strings.Replace(r.line, "^", "", 1))
	}
	for _, l := range listings {
		f.Add(l.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for command, err := range Lines([]byte(line)) {
			if err != nil {
				return
			}
			for _, c := range []Context{machine, {}} {
				roundTrip(t, command, c)
			}
		}
	})
}

func roundTrip(t *testing.T, line string, c Context) {
	d, err := ParseDynamic(line, c)
	var e *caret.Error
	if errors.As(err, &e) && (e.Column < 0 || e.Column > len(e.Command)+1 || e.Text == "" || e.Errno == 0) {
		t.Fatalf("%q: column %d, %+v", line, e.Column, e)
	}
	if err != nil || d.Kind == Delete {
		return
	}
	again, err := ParseDynamic(d.String(), c)
	if err != nil || again.String() != d.String() || !reflect.DeepEqual(again.Args, d.Args) {
		t.Fatalf("%q is listed as %q, which is %v, %v", line, d, again, err)
	}
	if !again.same(d) || again.Family != d.Family || again.Kind != d.Kind {
		t.Fatalf("%q is listed as %q, which is something else", line, d)
	}
}
