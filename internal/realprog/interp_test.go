package realprog

import (
	"path/filepath"
	"testing"
)

// TestWholeInterpreterLoops: functions with thousands of instructions.
func TestWholeInterpreterLoops(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		bin := buildWork(t, "sql", "libsqlite3.a", "libsqlite3-dev")
		w := startWork(t, disassemble(t, bin), bin)
		w.test(t, "query", "sqlite3VdbeExec")
		w.quit(t)
	})
	t.Run("lua", func(t *testing.T) {
		bin := buildWork(t, "lua", "liblua5.4.a", "liblua5.4-dev", "-I/usr/include/lua5.4")
		w := startWork(t, disassemble(t, bin), bin)
		w.longjmps = true
		w.test(t, "run", "luaV_execute")
		w.quit(t)
	})
	t.Run("python", testPythonLoop)
}

// loopScript does its work for each line it reads.
const loopScript = `
import hashlib, sys
class Shape:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
    def __lt__(self, other): return self.n < other.n
    @property
    def area(self): return self.n ** 2
class Square(Shape):
    def __init__(self, n, *rest, **more): super().__init__(n); self.rest, self.more = rest, more
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def numbers(n):
    try:
        for i in range(n): got = yield i * i; yield got or -i
    finally:
        yield "end"
def work():
    out = [fib(7)]
    shapes = [Square(i * 7 % 5, i, a=i) for i in range(6)]
    out += [s.area for s in sorted(shapes)] + [shapes[0] == shapes[5], shapes[1].more, *shapes[2].rest]
    g = numbers(3)
    out += [next(g), g.send("sent"), *g]
    for text in "1", "x", None, "0":
        try: out.append(10 // int(text))
        except (ValueError, TypeError) as e: out.append(type(e).__name__)
        except ZeroDivisionError: out.append("zero")
        else: out.append("else")
        finally: out.append("finally")
    total, i = 0, 0
    while True:
        i += 1
        if i % 3 == 0: continue
        if i > 20: break
        total = (total << 1 ^ i) & 0xffff | i - 1
        total += -i if not i & 4 else ~i
    out += [total, total / 7, f"{total:>8}|{i!r}", 3 < i <= 99, i is not None, "a" in "cat"]
    head, *body, tail = range(6)
    match {"kind": "point", "at": (1, [2, 3])}:
        case {"kind": "point", "at": (x, [y, *z])} if x < y: out.append((x, y, z))
    d = {k: v for k, v in zip("abc", (1, 2.5, 3j))}
    d |= {"d": {*"x"}}; del d["a"]; a, b = 1, 2; a, b = b, a
    out += [head, body, tail, d, (lambda *a, k=1, **kw: (a, k, kw))(1, k=2, z=3), body[1:3], body[::-1], [*map(str, body)]]
    with open("/dev/null") as f: out.append(f.read())
    assert a == 2 and b == 1, "swapped"
    def outer():
        n = 0
        def inner():
            nonlocal n
            n += 1
            return n
        return inner() + inner()
    return repr(out + [outer()])
for line in sys.stdin:
    out = work()
    print("done", line.strip(), "digest", hashlib.sha256(out.encode()).hexdigest(), "calls 0", flush=True)
print("right")
`

// testPythonLoop: an installed program, whose symbols are those that it exports.
func testPythonLoop(t *testing.T) {
	python, err := filepath.EvalSymlinks(requires(t, "python3")[0])
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "loop.py")
	write(t, script, loopScript)
	w := &whole{prog: start(t, t.TempDir(), python, script), code: disassemble(t, python)}
	w.varies = true // it counts how often code runs, and rewrites what runs often
	w.test(t, "run", "_PyEval_EvalFrameDefault")
	w.quit(t)
}
