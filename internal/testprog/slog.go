package testprog

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Slogged makes a log the default one until the test ends, and returns what tells its lines: "LEVEL message". Tests that
// use it must not run beside others.
func Slogged(t testing.TB) func() []string {
	t.Helper()
	l := &lines{}
	before := slog.Default()
	slog.SetDefault(slog.New(l))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() []string {
		l.mu.Lock()
		defer l.mu.Unlock()
		return append([]string(nil), l.all...)
	}
}

// lines keeps the messages of records.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Level.String()+" "+strings.TrimSpace(r.Message))
	return nil
}
