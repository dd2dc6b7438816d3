package amd64_test

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/jit"
	"github.com/gokprobe/gokprobe/program"
)

// planted is a compiled program that this process runs itself.
type planted struct {
	code  uintptr // a function that runs the program as often as its argument says
	maps  [][]uint64
	mem   []byte
	start arch.Addr
}

// plant puts p, compiled, behind a loop that counts down from what rax says. The
// program may see what rdi is: the number of turns that are left.
func plant(t testing.TB, p *program.Program, env program.Target) *planted {
	t.Helper()
	checked, err := program.Check(p)
	if err != nil {
		t.Fatal(err)
	}
	size := 1 << 13
	for _, m := range p.Maps {
		size += m.Len()
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	q := &planted{mem: mem, start: arch.Addr(uintptr(unsafe.Pointer(&mem[0])))}
	off := 1 << 13
	for _, m := range p.Maps {
		env.Maps = append(env.Maps, q.start+arch.Addr(off))
		q.maps = append(q.maps, unsafe.Slice((*uint64)(unsafe.Pointer(&mem[off])), m.Len()/8))
		off += m.Len()
	}
	body, err := jit.Compiler{}.Compile(checked, env)
	if err != nil {
		t.Fatal(err)
	}
	q.loop(t, body)
	return q
}

// loop is: 1: mov %rax,%rdi; call 2f; sub $1,%rax; jnz 1b; ret; 2: the body; ret
func (q *planted) loop(t testing.TB, body arch.Body) {
	const at = 64
	code, err := body.Assemble(q.start + at)
	if err != nil {
		t.Fatal(err)
	}
	loop := []byte{0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xe8, 1, 0x75, 0xf2, 0xc3}
	binary.LittleEndian.PutUint32(loop[4:], at-8)
	copy(q.mem, loop)
	copy(q.mem[at:], append(code.Code, 0xc3))
	q.code = uintptr(q.start)
}

func (q *planted) run(n int) {
	closure := &q.code
	(*(*func(int))(unsafe.Pointer(&closure)))(n)
}

var raceEnv = program.Target{HWCAP2: 2, RedZone: true}

// turns is the register that plant's loop counts in.
var turns = program.Reg("rdi")

func TestCompiledCountersAreExactAmongThreads(t *testing.T) {
	const threads, n = 8, 50000
	log2 := program.Map{Kind: program.Log2, Shards: 4}
	linear := program.Map{Kind: program.Linear, Min: 100, Step: 1000, Buckets: 20, Shards: 2}
	p, err := program.Build("counts", 1, (*amd64.Regs)(nil).Names(), program.Cond{}, program.CountHit{}, program.CountHit{Shards: 8},
		program.AddToHistogram{Map: log2, Value: turns}, program.AddToHistogram{Map: linear, Value: turns})
	if err != nil {
		t.Fatal(err)
	}
	q := plant(t, p, raceEnv)
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			q.run(n)
		})
	}
	all.Wait()
	used := 0
	for shard := range 8 {
		if q.maps[1][shard*program.LineSize/8] != 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("%d threads use %d shards", threads, used)
	}
	for i, m := range p.Maps {
		got, err := m.Values(q.maps[i])
		if err != nil {
			t.Fatal(err)
		}
		want := make([]uint64, m.PerShard())
		for v := range n {
			want[m.Cell(uint64(v+1))] += threads
		}
		for c := range want {
			if got[c] != want[c] {
				t.Errorf("map %d cell %d: %d, want %d", i, c, got[c], want[c])
			}
		}
	}
}

func TestCompiledRecordsAreCompleteAndInOrderAmongThreads(t *testing.T) {
	const threads, bursts, burst = 6, 3000, 20
	ring := program.Map{Kind: program.Ring, Size: 1 << 13}
	p, err := program.Build("records", 7, (*amd64.Regs)(nil).Names(), program.Cond{},
		program.WriteRecord{Ring: ring, Items: []program.Item{
			{Name: "stack", Value: program.Reg("rsp")}, {Name: "turns", Value: turns}, {Name: "time", Value: program.Now()},
			{Name: "text", Kind: program.Bytes, Max: 13, Value: program.Reg("rsp")}}})
	if err != nil {
		t.Fatal(err)
	}
	q := plant(t, p, raceEnv)
	r, err := program.NewRingReader(ring, q.maps[0])
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var running atomic.Int32
	running.Store(threads)
	for range threads {
		all.Go(func() {
			defer running.Add(-1)
			runtime.LockOSThread()
			for range bursts {
				q.run(burst)
				runtime.Gosched()
			}
		})
	}
	last := map[uint64]uint64{} // times of the last record, by the thread's stack
	records := 0
	check := func(rec program.Record) {
		records++
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(rec.Payload[8*i:]) }
		stack, left, time, bad := word(0), word(1), word(2), word(3)
		if rec.Program != 7 || left == 0 || left > burst || time <= last[stack] || bad != 0 {
			t.Errorf("record % x after one of time %d", rec.Payload, last[stack])
		}
		last[stack] = time
	}
	for done := false; !done; {
		done = running.Load() == 0
		if _, err := r.Read(check); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	all.Wait()
	lost := q.maps[1][0]
	if uint64(records)+lost != threads*bursts*burst || r.Unread() != 0 {
		t.Errorf("%d records, %d lost, %d bytes left: want %d", records, lost, r.Unread(), threads*bursts*burst)
	}
	if records < bursts || len(last) < threads {
		t.Errorf("%d records of %d threads", records, len(last))
	}
	t.Log(records, "records,", lost, "lost")
}

// handRecord is what bench's hand-written detour does: reserve a place in a ring that is never
// full, and write 15 registers, flags and time.
type handRecord struct{ ring arch.Addr }

func (h handRecord) Assemble(at arch.Addr) (arch.BodyCode, error) {
	code := []byte{
		0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c, 0x50, 0x51, 0x52, // lea -128(%rsp),%rsp; pushf; push %rax, %rcx, %rdx
		0xb9, 0, 1, 0, 0, 0xf0, 0x48, 0x0f, 0xc1, 0x0d, 0, 0, 0, 0, // mov $256,%ecx; lock xadd %rcx,ring(%rip)
		0x0f, 0xb7, 0xc9, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0x48, 0x01, 0xc1, // movzwl %cx,%ecx; lea ring+256(%rip),%rax; add %rax,%rcx
	}
	binary.LittleEndian.PutUint32(code[19:], uint32(h.ring-at-23))
	binary.LittleEndian.PutUint32(code[29:], uint32(h.ring+256-at-33))
	for n := range 15 { // mov %r0 … %r14,8n(%rcx)
		code = append(code, 0x48|byte(n>>3<<2), 0x89, 0x41|byte(n&7<<3), byte(8*n))
	}
	code = append(code, 0x0f, 0x31, 0x48, 0xc1, 0xe2, 32, 0x48, 0x09, 0xd0, // rdtsc; shl $32,%rdx; or %rdx,%rax
		0x48, 0x89, 0x41, 120, 0x48, 0xc7, 0x81, 128, 0, 0, 0, 1, 0, 0, 0, // mov %rax,120(%rcx); movq $1,128(%rcx)
		0x5a, 0x59, 0x58, 0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0)
	return arch.BodyCode{Code: code}, nil
}

// BenchmarkCompiled compares programs with hand-written bodies.
func BenchmarkCompiled(b *testing.B) {
	names := (*amd64.Regs)(nil).Names()
	ring := program.Map{Kind: program.Ring, Size: 1 << 20}
	arg := func(r string) program.Item { return program.Item{Name: r, Value: program.Reg(r)} }
	now := program.Item{Name: "time", Value: program.Now()}
	thread := program.Item{Name: "thread", Value: program.CurrentThread()}
	var all []program.Item
	for _, r := range names[:16] {
		all = append(all, arg(r))
	}
	text := program.Item{Name: "text", Kind: program.String, Max: 32, Value: program.Reg("rbx")}
	for _, c := range []struct {
		name   string
		action program.Action
		body   func(at arch.Addr) arch.Body
	}{
		{"count by hand", nil, func(at arch.Addr) arch.Body { return handWritten{at} }},
		{"count", program.CountHit{}, nil},
		{"count in 4 shards", program.CountHit{Shards: 4}, nil},
		{"log2", program.AddToHistogram{Map: program.Map{Kind: program.Log2}, Value: turns}, nil},
		{"linear", program.AddToHistogram{Map: program.Map{Kind: program.Linear, Step: 10, Buckets: 10}, Value: turns}, nil},
		{"record by hand", nil, func(at arch.Addr) arch.Body { return handRecord{at} }},
		{"record of 2 arguments", program.WriteRecord{Ring: ring, Items: []program.Item{arg("rdi"), arg("rsi")}}, nil},
		{"record of time and 2 arguments", program.WriteRecord{Ring: ring, Items: []program.Item{now, arg("rdi"), arg("rsi")}}, nil},
		{"record of time, thread and 2 arguments", program.WriteRecord{Ring: ring, Items: []program.Item{now, thread, arg("rdi"), arg("rsi")}}, nil},
		{"record of time and 16 registers", program.WriteRecord{Ring: ring, Items: append(all, now)}, nil},
		{"record of a string of 8", program.WriteRecord{Ring: ring, Items: []program.Item{text}}, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			action := c.action
			if action == nil {
				action = program.WriteRecord{Ring: ring, Items: all}
			}
			p, err := program.Build(c.name, 1, names, program.Cond{}, action)
			if err != nil {
				b.Fatal(err)
			}
			q := plant(b, p, raceEnv)
			if c.body != nil {
				q.loop(b, c.body(q.start+1<<13))
			}
			q.measure(b, p)
		})
	}
}

// measure makes room in a ring now and then.
func (q *planted) measure(b *testing.B, p *program.Program) {
	b.ResetTimer()
	for n := b.N; n > 0; n -= 1000 {
		q.run(min(n, 1000))
		if ring := q.maps[0]; p.Maps[0].Kind == program.Ring {
			atomic.StoreUint64(&ring[program.RingTail/8], ring[program.RingHead/8])
		}
	}
	if len(q.maps) > 1 && q.maps[1][0] != 0 {
		b.Errorf("%d lost", q.maps[1][0])
	}
}
