package door

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// caretaker is a shell that waits for the end of this process, and then unmounts the
// mount that it may have left. A process that is killed can't do so itself, and the
// kernel leaves a mount whose server is gone: all who look there get ENOTCONN.
type caretaker struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser // closed by the kernel at the latest
}

// takeCare is what the caretaker does: a line means that all is well.
const takeCare = `read -r line && exit
umount -l "$1" 2>/dev/null || fusermount3 -u -z "$1" 2>/dev/null || fusermount -u -z "$1" 2>/dev/null`

// newCaretaker starts one for the mount on dir, which must not be there yet: a child that had the mount's device would
// keep it alive. It is nil where there is no shell.
func newCaretaker(dir string) *caretaker {
	cmd := exec.Command("sh", "-c", takeCare, "sh", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	stdin, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return nil
	}
	return &caretaker{cmd, stdin}
}

// dismiss ends the caretaker: there is no mount any more.
func (c *caretaker) dismiss() {
	if c == nil {
		return
	}
	_, _ = io.WriteString(c.stdin, "done\n")
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

// keepFromChildren closes the mount's device in programs that this process starts: go-fuse's direct mount
// leaves it open in them, and a mount lives as long as its device is open.
func keepFromChildren() {
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return
	}
	for _, link := range links {
		fd, err := strconv.Atoi(filepath.Base(link))
		if err != nil {
			continue
		}
		if target, err := os.Readlink(link); err == nil && target == fuseDevice {
			unix.CloseOnExec(fd)
		}
	}
}
