// Package debugfs shows a session as the kernel's files.
package debugfs
