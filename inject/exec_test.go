package inject

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// meanwhile is an action with which something happens while its rule is being prepared.
type meanwhile struct {
	Return
	happens func()
}

func (a meanwhile) bind(b binding) (effect, error) {
	a.happens()
	return a.Return.bind(b)
}

// TestAnExecWhileARuleIsArmedIsTold: the places are those of a program that is not there any more, wherever the exec comes in between.
func TestAnExecWhileARuleIsArmedIsTold(t *testing.T) {
	for at := range 2 {
		p := testprog.Start(t, testprog.Build(t, "execer"))
		s, err := kprobes.Attach(t.Context(), p.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
		if err != nil {
			t.Fatal(err)
		}
		in := New(s, Options{Log: func(m string) { t.Errorf("the injector warns: %s", m) }})
		binds := 0
		exec := meanwhile{happens: func() {
			if binds++; binds == at+1 {
				p.Do("exec", "ready 1")
			}
		}}
		_, err = in.Add(context.Background(), Rule{Specs: []string{"foo", "main"}, Attr: fault.Always(), Do: []Action{exec}})
		if !errors.Is(err, kprobes.ErrExecuted) || err.Error() != "cannot inject into foo, main: the process has executed another program" {
			t.Errorf("an exec at place %d: %v", at, err)
		}
		if err := errors.Join(in.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if got := p.Do("call 2", "ret"); got != "ret 27" {
			t.Error(got)
		}
		p.CheckClean()
		p.Quit()
	}
}
