package helper

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"testing"
)

const echo = "gokprobe-echo"

func init() {
	Register(echo, func() {
		if Confine(1<<30) == nil && OpenNoMore() == nil {
			s := Socket()
			_, _ = io.Copy(s, s)
		}
	})
}

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// TestAHelperIsConfined: it has what it was given, answers, and ends when it is told to.
func TestAHelperIsConfined(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := Start(echo, null)
	if err != nil {
		t.Fatal(err)
	}
	word := []byte("word")
	if _, err := p.Socket.Write(word); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(p.Socket, got); err != nil || string(got) != string(word) {
		t.Fatalf("%q, %v", got, err)
	}
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/limits")
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"core file size", "file size", "open files"} {
		if !regexp.MustCompile(`(?m)^Max ` + what + ` +0 +0 `).Match(limits) {
			t.Errorf("no limit of %s:\n%s", what, limits)
		}
	}
	if regexp.MustCompile(`(?m)^Max address space +unlimited`).Match(limits) {
		t.Errorf("no limit of memory:\n%s", limits)
	}
	p.Kill()
	p.Wait()
	if _, err := os.Stat("/proc/" + strconv.Itoa(p.PID())); err == nil {
		t.Error("it is not reaped")
	}
}

// TestWithoutMainThereIsNone: a program that does not ask for it is not started again.
func TestWithoutMainThereIsNone(t *testing.T) {
	hooked.Store(false)
	defer hooked.Store(true)
	if _, err := Start(echo, nil); !errors.Is(err, ErrNoMain) {
		t.Error(err)
	}
}
