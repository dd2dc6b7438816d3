package main

import (
	"context"
	"log/slog"
)

// logger is a log whose messages are printed as warnings.
func (s stdio) logger() *slog.Logger {
	return slog.New(warnings{func(text string) { s.warn("%s", text) }})
}

// warnings prints the message of each record as a sentence of its own.
type warnings struct{ warn func(text string) }

// Enabled implements slog.Handler.
func (warnings) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	w.warn(r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(string) slog.Handler { return w }
