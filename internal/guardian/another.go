package guardian

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// busy is how long Await waits for a guardian, which may have to wait itself.
const busy = 5 * time.Second

// Await is for a caller whose attach failed because process pid is traced already. It
// waits while a guardian recovers the process, or while that guardian's tracer is about
// to die. It reports whether nobody traces the process any more.
func Await(pid int) bool {
	for range 4 { // the tracer, its guardian, perhaps twice
		tracer, err := tracerOf(pid)
		if err != nil || tracer == 0 {
			return err == nil
		}
		if tracer == os.Getpid() || !passing(tracer) {
			return false
		}
		l := Watch(tracer)
		l.Ended(busy)
		l.Close()
	}
	return false
}

// tracerOf is the process that traces pid, 0 if none does.
func tracerOf(pid int) (int, error) {
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil || st.TracerPid == 0 {
		return 0, err
	}
	of, err := procfs.ReadStatus(st.TracerPid, 0) // TracerPid is a thread's
	if err != nil {
		return 0, nil
	}
	return of.Tgid, nil
}

// passing tells of a process that it traces no longer than it has to: it is a guardian, or about to die.
func passing(pid int) bool {
	const kill, exiting = int(unix.SIGKILL), 4 // PF_EXITING
	if st, err := procfs.ReadStatus(pid, 0); err != nil || st.SigPnd.Has(kill) || st.ShdPnd.Has(kill) {
		return true
	}
	if st, err := procfs.ReadStat(pid, 0); err != nil || st.Flags&exiting != 0 {
		return true
	}
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	name, _, _ := strings.Cut(string(args), "\x00")
	return err != nil || name == Name
}
