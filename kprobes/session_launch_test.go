package kprobes_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestLaunchHoldsAProgramBeforeConstructorsRun: of the libraries that it is linked with, glibc's and musl's, also where an auditor's library is loaded first
// (rtld-audit(7)), and where the program's file is executed by another one. A static program, whose dynamic linker tells nothing, is held at its entry point.
// A child that the auditor has forked meanwhile, which nobody holds, runs on into the program to its right end.
func TestLaunchHoldsAProgramBeforeConstructorsRun(t *testing.T) {
	const auditor = `
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned la_version(unsigned version)
{
	int status = 0;
	pid_t child = getenv("FORKS") ? fork() : -1;
	if (child > 0 && (waitpid(child, &status, 0) != child || status))
		_exit(status % 255 | 1);
	return version;
}
`
	source := filepath.Join(t.TempDir(), "auditor.c")
	ok(t, os.WriteFile(source, []byte(auditor), 0o600))
	linked := func(c libc) string {
		c.requires(t)
		flags := append([]string{"-rdynamic", "-Wl,--no-as-needed", c.lib(t, "libplug.so")}, c.flags...)
		return testprog.Build(t, "modules", flags...)
	}
	audit := filepath.Join(t.TempDir(), "auditor.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", audit, source).CombinedOutput(); err != nil {
		t.Fatalf("compiling the auditor: %v: %s", err, out)
	}
	for _, c := range []struct {
		name, sym string
		command   []string
		env       []string
		follow    bool
	}{
		{name: "glibc", sym: "libplug.so:build", command: []string{linked(libcs[0])}},
		{name: "musl", sym: "libplug.so:build", command: []string{linked(libcs[1])}},
		{name: "glibc, by a name alone", sym: "build", command: []string{linked(libcs[0])}},
		{name: "an auditor", sym: "build", command: []string{linked(libcs[0])}, env: []string{"LD_AUDIT=" + audit}},
		{name: "an auditor that forks", sym: "libplug.so:build", command: []string{linked(libcs[0])}, env: []string{"LD_AUDIT=" + audit, "FORKS="}},
		{name: "executed by a shell", sym: "libplug.so:build", command: []string{"/bin/sh", "-c", "exec " + linked(libcs[0])}, follow: true},
		{name: "static", sym: "main", command: []string{testprog.Build(t, "prey", "-static")}},
		{name: "static and moved", sym: "main", command: []string{testprog.Build(t, "prey", "-static-pie")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			ok(t, err)
			defer null.Close()
			s, err := kprobes.Launch(context.Background(), kprobes.Command{
				Path: c.command[0], Args: c.command, Env: append(os.Environ(), c.env...), Files: []*os.File{null, null, os.Stderr},
			}, kprobes.Options{Follow: c.follow, Log: func(m string) { t.Log(m) }})
			ok(t, err)
			defer closeSession(t, s)
			kp := &kprobes.Kprobe{SymbolName: c.sym}
			register(t, s, kp)
			ok(t, s.Start())
			<-s.Done()
			if exit := s.Exit(); exit == nil || exit.Code != 0 {
				t.Errorf("it ended with %+v", exit)
			}
			wantHits(t, kp, 1)
		})
	}
}
