package inject

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/xrash/smetrics"

	"github.com/gokprobe/gokprobe/internal/host"
)

// callClasses are strace's words for sets of system calls (strace(1), "trace=%file" and so on).
var callClasses = map[string]string{
	"file": `access acct chdir chmod chown chroot creat execve execveat faccessat faccessat2 fchmodat fchmodat2 fchownat fspick futimesat
		getcwd getxattr inotify_add_watch lchown lgetxattr link linkat listxattr llistxattr lremovexattr lsetxattr lstat mkdir mkdirat
		mknod mknodat mount mount_setattr move_mount name_to_handle_at newfstatat open open_tree openat openat2 pivot_root quotactl
		readlink readlinkat removexattr rename renameat renameat2 rmdir setxattr stat statfs statx swapoff swapon symlink symlinkat
		truncate umount2 unlink unlinkat uselib utime utimensat utimes`,
	"process": "clone clone3 execve execveat exit exit_group fork kill pidfd_open pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo tgkill tkill vfork wait4 waitid",
	"network": "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendfile sendmmsg sendmsg sendto setsockopt shutdown socket socketpair",
	"signal": `kill pause pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
		rt_tgsigqueueinfo sigaltstack signalfd signalfd4 tgkill tkill`,
	"ipc":    "msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget",
	"memory": "brk get_mempolicy madvise map_shadow_stack mbind migrate_pages mincore mlock mlock2 mlockall mmap move_pages mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise remap_file_pages set_mempolicy shmat shmdt",
}

// ParseSyscalls returns the numbers of the system calls that text names, in order, each once. text has items separated by
// commas. An item is a name (openat), a number, a pattern (*at), or as in strace a regular expression (/^open) or a class (%file).
func ParseSyscalls(text string) ([]int, error) {
	found := map[int]bool{}
	for _, word := range strings.Split(text, ",") {
		numbers, err := parseCall(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		for _, nr := range numbers {
			found[nr] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// parseCall reads one of those words.
func parseCall(word string) (numbers []int, err error) {
	const last = 0xffff
	if nr, ok := host.CallNumbers[word]; ok {
		return []int{nr}, nil
	}
	if nr, err := strconv.ParseUint(word, 0, 32); err == nil && nr <= last {
		return []int{int(nr)}, nil
	}
	if class, ok := callClasses[strings.TrimPrefix(word, "%")]; ok {
		for _, name := range strings.Fields(class) {
			numbers = append(numbers, host.CallNumbers[name])
		}
		return numbers, nil
	}
	matches := func(name string) bool { ok, _ := path.Match(word, name); return ok }
	switch {
	case strings.HasPrefix(word, "/"):
		e, err := regexp.Compile(word[1:])
		if err != nil {
			return nil, fmt.Errorf("%s is no regular expression: %w", word, err)
		}
		matches = e.MatchString
	case !strings.ContainsAny(word, "*?["):
		return nil, fmt.Errorf("there is no system call %q%s", word, likeCall(word))
	}
	for name, nr := range host.CallNumbers {
		if matches(name) {
			numbers = append(numbers, nr)
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("no system call is like %s", word)
	}
	return numbers, nil
}

// likeCall suggests a name.
func likeCall(word string) string {
	best, name := 0.8, ""
	for _, known := range slices.Sorted(maps.Keys(host.CallNumbers)) {
		if like := smetrics.JaroWinkler(word, known, 0.7, 4); like > best {
			best, name = like, known
		}
	}
	if name == "" {
		return ", see syscalls(2)"
	}
	return fmt.Sprintf("; did you mean %s?", name)
}

// SyscallName is the name of a system call, or its number if it has none.
func SyscallName(nr int) string {
	if name, ok := host.CallNames[nr]; ok {
		return name
	}
	return strconv.Itoa(nr)
}
