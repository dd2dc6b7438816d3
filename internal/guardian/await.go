package guardian

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// busy is how long Await waits for a guardian, which may have to wait itself.
const busy = 5 * time.Second

// Await is for whoever was told that process pid is traced already: it waits while a guardian puts that right. It reports
// whether nobody traces it any more.
func Await(pid int) bool {
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil || st.TracerPid == 0 {
		return err == nil
	}
	of, err := procfs.ReadStatus(st.TracerPid, 0) // TracerPid is a thread's
	if err != nil {
		return true
	}
	args, err := os.ReadFile("/proc/" + strconv.Itoa(of.Tgid) + "/cmdline")
	if name, _, _ := strings.Cut(string(args), "\x00"); err != nil || name != Name {
		return false
	}
	l := Watch(of.Tgid)
	defer l.Close()
	if l.Ended(busy) {
		return true
	}
	st, err = procfs.ReadStatus(pid, 0)
	return err == nil && st.TracerPid == 0
}
