module github.com/gokprobe/gokprobe

go 1.26.8

require (
	github.com/cilium/ebpf v0.22.0
	github.com/clipperhouse/uax29/v2 v2.7.0
	github.com/cpuguy83/go-md2man/v2 v2.0.7
	github.com/go-delve/delve v1.27.2
	github.com/hanwen/go-fuse/v2 v2.12.1
	github.com/ianlancetaylor/demangle v0.0.0-20260724033716-83e58baca724
	github.com/russross/blackfriday/v2 v2.1.0
	github.com/ulikunitz/xz v0.5.17
	github.com/urfave/cli/v2 v2.27.7
	github.com/xrash/smetrics v0.0.0-20240521201337-686a1a2994c1
	github.com/yuin/goldmark v1.8.7
	go.starlark.net v0.0.0-20260908191801-89a6a09411d5
	golang.org/x/arch v0.32.0
	golang.org/x/sys v0.49.0
)

require github.com/google/go-dap v0.12.0

require golang.org/x/telemetry v0.0.0-20241106142447-58a1122356f5 // indirect
