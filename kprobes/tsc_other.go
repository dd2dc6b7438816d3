//go:build !amd64

package kprobes

import "time"

func tsc() uint64 { return uint64(time.Now().UnixNano()) }
