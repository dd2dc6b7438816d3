// Package debugfstest holds no code but tests: the kernel's selftests of its tracing files
// (tools/testing/selftests/ftrace), transposed one by one to a session's files, which a shell
// uses through a mount.
package debugfstest
