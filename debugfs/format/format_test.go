package format_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/debugfs/format"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

var (
	address = fetch.Type{Name: "x64", Kind: fetch.Hex, Size: 8}
	text    = fetch.Type{Name: "string", Kind: fetch.String}
)

func array(t fetch.Type, n int) fetch.Type { t.Count = n; return t }

func TestFormatOfAProbe(t *testing.T) {
	got := format.Text("open", 1401, []fetch.Field{
		{Name: "common_pid", Type: fetch.Type{Name: "s32", Kind: fetch.Signed, Size: 4}},
		{Name: "__probe_ip", Type: address},
		{Name: "path", Type: text},
		{Name: "flags", Type: fetch.Type{Name: "x32", Kind: fetch.Hex, Size: 4}},
		{Name: "mode", Type: fetch.Type{Name: "s16", Kind: fetch.Signed, Size: 2}},
		{Name: "n", Type: fetch.Type{Name: "u64", Kind: fetch.Unsigned, Size: 8}},
	})
	const want = `name: open
ID: 1401
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long __probe_ip;	offset:8;	size:8;	signed:0;
	field:__data_loc char[] path;	offset:16;	size:4;	signed:1;
	field:u32 flags;	offset:20;	size:4;	signed:0;
	field:s16 mode;	offset:24;	size:2;	signed:1;
	field:u64 n;	offset:26;	size:8;	signed:0;

print fmt: "(%lx) path=\"%s\" flags=0x%x mode=%d n=%Lu", REC->__probe_ip, __get_str(path), REC->flags, REC->mode, REC->n
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestFormatOfAReturn(t *testing.T) {
	got := format.Text("ret", 7, []fetch.Field{
		{Name: "__probe_func", Type: address},
		{Name: "__probe_ret_ip", Type: address},
		{Name: "c", Type: array(fetch.Type{Name: "char", Kind: fetch.Char, Size: 1}, 3)},
		{Name: "s", Type: array(text, 2)},
		{Name: "f", Type: fetch.Type{Name: "b4@4/32", Kind: fetch.BitField, Size: 4, Width: 4, Shift: 4}},
		{Name: "at", Type: fetch.Type{Name: "symbol", Kind: fetch.SymbolOff, Size: 8}},
	})
	const want = `name: ret
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long __probe_func;	offset:8;	size:8;	signed:0;
	field:unsigned long __probe_ret_ip;	offset:16;	size:8;	signed:0;
	field:u8 c[3];	offset:24;	size:3;	signed:0;
	field:__data_loc char[][2] s;	offset:27;	size:8;	signed:1;
	field:u32 f;	offset:35;	size:4;	signed:0;
	field:u64 at;	offset:39;	size:8;	signed:0;

print fmt: "(%lx <- %lx) c={'%c','%c','%c'} s={\"%s\",\"%s\"} f=%u at=%pS", REC->__probe_func, REC->__probe_ret_ip, REC->c[0], REC->c[1], REC->c[2], __get_str(s[0]), __get_str(s[1]), REC->f, REC->at
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestFormatOfASyntheticEvent(t *testing.T) {
	got := format.Text("lat", 8, []fetch.Field{
		{Name: "common_pid", Type: fetch.Type{Name: "s32", Kind: fetch.Signed, Size: 4}},
		{Name: "lat", Type: fetch.Type{Name: "u64", Size: 8}},
		{Name: "who", Type: text},
	})
	const want = `name: lat
ID: 8
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:u64 lat;	offset:8;	size:8;	signed:0;
	field:__data_loc char[] who;	offset:16;	size:4;	signed:1;

print fmt: "lat=%Lu who=\"%s\"", REC->lat, __get_str(who)
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
