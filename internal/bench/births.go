package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/gokprobe/gokprobe/trace"
)

//go:embed testdata/births.c
var birthsSource []byte

// made is how many children or threads a measurement makes, and birthRounds how many measurements there are.
const (
	made        = 4
	birthRounds = 3
)

var birthKinds = []string{"fork", "thread", "exec"}

// births measures what a new process, thread or program costs the target: alone, and with counted functions, whose copies are taken
// out of a child, or counted in it, too.
func births(dir, _ string, kept io.Writer) error {
	bin := filepath.Join(dir, "births")
	if err := compile(birthsSource, bin); err != nil {
		return err
	}
	fmt.Printf("A new process, thread, program (medians of %d rounds of %d; in brackets, how many times what it costs alone)\n", birthRounds, made)
	w := table()
	fmt.Fprintln(w, "functions counted\t"+strings.Join(birthKinds, "\t"))
	var alone map[string]series
	for _, c := range []struct {
		name, spec string
		opts       []trace.Option
	}{
		{name: "none"},
		{"1", "fn_0000", nil},
		{"1, followed", "fn_0000", []trace.Option{trace.Follow()}},
		{"10,000", "fn_*", nil},
		{"10,000, followed", "fn_*", []trace.Option{trace.Follow()}},
	} {
		m, err := birthsWith(bin, c.spec, c.opts)
		if err != nil {
			return fmt.Errorf("counting %s: %w", c.name, err)
		}
		if alone == nil {
			alone = m
		}
		fmt.Fprint(w, c.name)
		for _, kind := range birthKinds {
			fmt.Fprintf(w, "\t%s (%.1f)", show(m[kind].median()), float64(m[kind].median())/float64(alone[kind].median()))
			if err := m[kind].keep(kept, fmt.Sprintf("Birth/of=%s/counted=%s", kind, strings.ReplaceAll(c.name, ", ", "-"))); err != nil {
				return err
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// birthsWith measures while the functions of spec are counted, none if it is empty.
func birthsWith(bin, spec string, opts []trace.Option) (m map[string]series, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return nil, err
	}
	defer t.end()
	if spec != "" {
		s, attachErr := trace.Attach(context.Background(), t.pid(), append(opts, trace.Log(slog.New(slog.DiscardHandler)))...)
		if attachErr != nil {
			return nil, attachErr
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if _, err := s.Probe(spec, trace.Count()); err != nil {
			return nil, err
		}
	}
	m = map[string]series{}
	for range birthRounds {
		for _, kind := range birthKinds {
			d, err := t.timed("%s %d", kind, made)
			if err != nil {
				return nil, err
			}
			m[kind] = append(m[kind], d)
		}
	}
	return m, nil
}
