package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/door"
	"github.com/gokprobe/gokprobe/internal/escape"
)

func debugfsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "debugfs",
		Usage:     "read and write a session's files, like the kernel's",
		UsageText: "gokprobe debugfs -p PID ls|cat|write|mount …",
		Description: `Every attach and run has files like those of the kernel's kprobes, with the same names,
formats and errors: kprobes/list, kprobes/enabled, tracing/kprobe_events, tracing/trace_pipe,
tracing/events/… This command reads and writes the files of the session that holds process
PID. attach -hold makes a session without probes, for its files alone. Only the user of the
session and root may use its files.

Other programs reach the files on a socket: curl --unix-socket FILE http://x/tracing/trace.
FILE is $XDG_RUNTIME_DIR/gokprobe/PID.sock, for root /run/gokprobe/PID.sock; without that
directory /tmp/gokprobe-UID/PID.sock.

Exit status: 0 done, 1 the file can't be read or written, 2 wrong usage, 3 no session
holds PID.

Examples:
  gokprobe attach -p 4711 -hold &
  gokprobe debugfs -p 4711 write tracing/kprobe_events \
      'p:ev parse s=+0(%di):string'
  gokprobe debugfs -p 4711 write tracing/events/kprobes/ev/enable 1
  gokprobe debugfs -p 4711 cat tracing/trace_pipe
  gokprobe debugfs -p 4711 mount /mnt`,
		Flags:       []cli.Flag{&cli.StringFlag{Name: "p", Usage: "use the files of the session that holds process `PID`"}},
		Subcommands: []*cli.Command{lsCommand(std), catCommand(std), writeCommand(std), mountCommand(std)},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("unknown command %q%s, choose ls, cat, write or mount", name, nearCommand(c.Command.Subcommands, name))
			}
			return usagef("say what to do with the files: ls, cat, write or mount")
		},
	}
}

// remoteFiles is the connection of one command to a session's files.
type remoteFiles struct {
	*door.Client
	std stdio
	pid int
	ctx context.Context // ends when the user interrupts the command
}

// withFiles connects to the session that holds the process of -p, and calls f.
func withFiles(c *cli.Context, std stdio, f func(r *remoteFiles) error) error {
	to, err := findTarget(c.String("p"))
	if err != nil {
		return err
	}
	client, err := door.Dial(to.pid)
	if err != nil {
		return noSession(to.pid, err)
	}
	defer client.Close()
	in := watchInterrupts(std.warn)
	defer in.stop()
	return f(&remoteFiles{client, std, to.pid, in.ctx})
}

func noSession(pid int, err error) error {
	hint := ""
	if errors.Is(err, door.ErrNoSession) {
		hint = fmt.Sprintf("; gokprobe attach -p %d -hold makes one", pid)
	}
	return attachError(fmt.Errorf("%w%s", err, hint))
}

// treeName turns a path as users write it into a name for io/fs: no slash in front, clean.
func treeName(arg string) string {
	return path.Clean("./" + strings.TrimLeft(arg, "/"))
}

// cannot makes the sentence for an error in the use of the file name. do is a verb.
func cannot(do, name string, err error) error {
	if isUnreachable(err) {
		return fmt.Errorf("cannot %s %s: the session does not answer: %w", do, name, fileError(err))
	}
	return fmt.Errorf("cannot %s %s: %w", do, name, fileError(err))
}

// isUnreachable reports whether err came from the connection. All other errors are the session's
// answers about the file.
func isUnreachable(err error) bool {
	var remote *door.RemoteError
	return !errors.As(err, &remote) && !errors.Is(err, fs.ErrInvalid)
}

func lsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list a directory", UsageText: "gokprobe debugfs -p PID ls [PATH]",
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return usagef("unexpected argument %q", c.Args().Get(1))
			}
			return withFiles(c, std, func(r *remoteFiles) error { return r.ls(treeName(c.Args().First())) })
		},
	}
}

func (r *remoteFiles) ls(name string) error {
	info, err := r.Stat(name)
	if err != nil {
		return cannot("list", name, err)
	}
	entries := []fs.DirEntry{fs.FileInfoToDirEntry(info)}
	if info.IsDir() {
		if entries, err = r.ReadDir(name); err != nil {
			return cannot("list", name, err)
		}
	}
	for _, e := range entries {
		slash := ""
		if e.IsDir() {
			slash = "/"
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if _, err := fmt.Fprintf(r.std.out, "%s  %s%s\n", info.Mode(), e.Name(), slash); err != nil {
			return r.output(err)
		}
	}
	return nil
}

// output returns the error to report after a failed write to stdout: none if the reader,
// such as head(1), has gone.
func (r *remoteFiles) output(err error) error {
	if brokenPipe(err) {
		return nil
	}
	return fmt.Errorf("cannot write to stdout: %w", fileError(err))
}

func catCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name: "cat", Usage: "print files; trace_pipe until Ctrl-C or the session's end", UsageText: "gokprobe debugfs -p PID cat PATH [PATH …]",
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("no file given: gokprobe debugfs -p PID cat PATH")
			}
			return withFiles(c, std, func(r *remoteFiles) error {
				for _, arg := range c.Args().Slice() {
					if err := r.cat(treeName(arg)); err != nil || r.ctx.Err() != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (r *remoteFiles) cat(name string) error {
	f, err := r.Open(name)
	if err != nil {
		return cannot("read", name, err)
	}
	defer f.Close()
	defer context.AfterFunc(r.ctx, func() { _ = f.Close() })()
	out := escape.Writer{W: r.std.out.file}
	for buf := make([]byte, 32<<10); ; {
		n, err := f.Read(buf)
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return r.output(err)
			}
		}
		switch {
		case errors.Is(err, io.EOF), r.ctx.Err() != nil:
			return out.Flush()
		case err != nil:
			return cannot("read", name, err)
		}
	}
}

func writeCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name: "write", Usage: "write to a file, as echo TEXT > PATH does", UsageText: "gokprobe debugfs -p PID write [-a] PATH [TEXT …|-]",
		Description: `Writes the TEXTs, separated by blanks and followed by a newline, in one write. Without a TEXT,
or with -, it copies stdin unchanged, up to 1 MiB.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "a", Usage: "append, as echo TEXT >> PATH does: do not truncate the file first"}},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("no file given: gokprobe debugfs -p PID write PATH TEXT")
			}
			return withFiles(c, std, func(r *remoteFiles) error {
				text, err := r.text(c.Args().Tail())
				if err != nil {
					return err
				}
				return r.write(treeName(c.Args().First()), text, c.Bool("a"))
			})
		},
	}
}

// text returns the bytes to write: the words of the command line, or stdin.
func (r *remoteFiles) text(words []string) ([]byte, error) {
	if len(words) > 0 && (len(words) > 1 || words[0] != "-") {
		return []byte(strings.Join(words, " ") + "\n"), nil
	}
	text, err := io.ReadAll(io.LimitReader(r.std.in, door.MaxWrite+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read stdin: %w", fileError(err))
	}
	return text, nil
}

// write writes text to a file. Unless add is set it truncates the file first, but not
// if the text is too long to be written afterwards.
func (r *remoteFiles) write(name string, text []byte, add bool) error {
	if len(text) > door.MaxWrite {
		return fmt.Errorf("cannot write %s: more than %d bytes", name, door.MaxWrite)
	}
	if !add {
		if err := r.Truncate(name); err != nil {
			return cannot("write", name, err)
		}
	}
	if len(text) == 0 {
		return nil
	}
	if _, err := r.Write(name, text); err != nil {
		return cannot("write", name, err)
	}
	return nil
}

func mountCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name: "mount", Usage: "mount the files until Ctrl-C or the session's end", UsageText: "gokprobe debugfs -p PID mount DIR",
		Description: `Mounts the session's files on the directory DIR, for this user. Root needs /dev/fuse; other
users need fusermount3 too. Once the files are there, a line on stderr says "mounted:".
The target can read the files but not write them there (EDEADLK): its write would wait for
an answer that needs it to stop.`,
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("name one directory: gokprobe debugfs -p PID mount DIR")
			}
			return withFiles(c, std, func(r *remoteFiles) error { return r.mount(c.Args().First()) })
		},
	}
}

func (r *remoteFiles) mount(dir string) error {
	m, err := door.Mount(r.Client, dir, mountOptions(r.std, r.pid, r.Tracer()))
	if err != nil {
		return err
	}
	fmt.Fprintf(r.std.err, "mounted: %s\n", m.Dir())
	ended, stop := context.WithCancel(r.ctx)
	defer stop()
	go func() {
		r.Wait(ended)
		stop()
	}()
	select {
	case <-ended.Done():
	case <-m.Done():
	}
	return m.Close()
}
