package main

import (
	"context"
	"fmt"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// fetchFor fetches what the probes of a process need of debug information that is not here, if the user wants that (DEBUGINFOD_URLS). It is done before the process
// is attached to: nothing of it waits for a server.
func (s stdio) fetchFor(ctx context.Context, pid int, req request) {
	live := procfs.Living(pid)
	s.fetch(ctx, req.wanted(), func() (*symbols.Table, error) { return symbols.Open(live, ptrace.PeekMemory{PID: live}) })
}

// fetchOf is fetchFor for a program that is not started yet.
func (s stdio) fetchOf(ctx context.Context, program string, req request) {
	s.fetch(ctx, req.wanted(), func() (*symbols.Table, error) { return symbols.OpenFile(program) })
}

// wanted are the specifications of all probes.
func (r *request) wanted() []string {
	specs := r.specs
	for _, p := range r.logs {
		specs = append(specs[:len(specs):len(specs)], p.Spec)
	}
	return specs
}

func (s stdio) fetch(ctx context.Context, specs []string, open func() (*symbols.Table, error)) {
	if !symbols.Fetches() {
		return
	}
	table, err := open()
	if err != nil {
		return // attaching tells why
	}
	defer func() { _ = table.Close() }()
	p := s.progress("asking for debug information")
	defer p.end()
	for _, err := range table.FetchDebugInfo(ctx, specs, p.fetching) {
		s.warn("%v", err)
	}
}

// fetching makes the line one of a download.
func (p *progress) fetching(module string, n, total int64) {
	if p == nil {
		return
	}
	line := fmt.Sprintf("fetching the debug information of %s: %d MiB", escape.Text(module), n>>20)
	if total > 0 {
		line = fmt.Sprintf("fetching the debug information of %s: %d of %d MiB", escape.Text(module), n>>20, total>>20)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = line
}
