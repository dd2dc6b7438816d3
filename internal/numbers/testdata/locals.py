# gdb's opinion of what the source names at addresses in a program that it runs, with the functions of values.py. When it has told
# the process's ID it is told where to stop. The answers are lines of JSON on stdout; behind each, gdb waits for a line on stdin.
import random
import sys


def physical(frame):
    """The frame that has registers of its own. In an inlined one, gdb 13 finds the function's registers where it looks for those of its caller (DW_OP_entry_value)."""
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame


def finite(v):
    """JSON has no word for what is no number."""
    if isinstance(v, float) and not math.isfinite(v):
        return "NaN" if math.isnan(v) else "+Inf" if v > 0 else "-Inf"
    if isinstance(v, dict):
        return {k: finite(x) for k, x in v.items()}
    return [finite(x) for x in v] if isinstance(v, list) else v


def told(value):
    """What value() gives, as it is told, or why there is none."""
    try:
        v = value()
        return {"value": finite(typed(v)), "type": str(v.type)}
    except WHYS as why:
        return {"why": str(why) or "?"}


def seen(frame):
    """The parameters and local variables, by name; of a name that blocks share the innermost one."""
    out = {}
    block = frame.block()
    while block is not None and not block.is_static and not block.is_global:
        for s in block:
            if (s.is_argument or s.is_variable or s.is_constant) and s.name not in out:
                out[s.name] = s
        if block.function is not None:
            break
        block = block.superblock
    return out


def paths(name, v):
    """Some of what may be reached from a variable, as C writes it, and how gdb gets there."""
    t = v.type.strip_typedefs()
    if t.code == gdb.TYPE_CODE_ARRAY and not is_char(t.target()):
        low, high = t.range()
        return {"%s[%d]" % (name, i): lambda i=i: v[i] for i in {low, high} if low == 0 <= high}
    if t.code == gdb.TYPE_CODE_PTR and t.target().strip_typedefs().code == gdb.TYPE_CODE_PTR:
        inner = t.target().strip_typedefs().target().strip_typedefs()
        more = {"(*%s)->%s" % (name, f.name): lambda f=f: v.dereference().dereference()[f] for f in members(inner)}
        return {"*" + name: v.dereference, **more}
    if t.code == gdb.TYPE_CODE_PTR:
        out = {"%s->%s" % (name, f.name): lambda f=f: v.dereference()[f] for f in members(t.target().strip_typedefs())}
        if t.target().strip_typedefs().code not in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_VOID) and not re.match(r"map<", t.target().name or ""):
            out["*" + name] = v.dereference
        return out
    return {"%s.%s" % (name, f.name): lambda f=f: v[f] for f in members(t)}


# What Go's own types consist of: no names of the source.
OF_GO = [{"str", "len"}, {"array", "len", "cap"}, {"tab", "data"}, {"_type", "data"}]


def members(t):
    if t.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return []
    if set(f.name for f in t.fields()) in OF_GO or re.match(r"map<", t.name or ""):
        return []
    named = [f for f in t.fields() if f.name and hasattr(f, "bitpos") and not f.is_base_class and re.match(r"\w+$", f.name) and f.type.name != "%s::%s" % (t.name, f.name)]  # nor a variant of Rust's
    return random.sample(named, min(len(named), 3))


def own(name, v):
    """What may be reached from the variables of locals_test.go's programs."""
    t = v.type.strip_typedefs()
    if t.code == gdb.TYPE_CODE_STRUCT:
        all = [name + p for p in (".a", ".c[2]", ".d", ".f", ".g", ".in", ".in.x", ".in.y[1]", ".in.y[1][2]", ".t", ".t[1]")] + ["&" + name, "&%s.in.y[0][1]" % name]
    elif t.code != gdb.TYPE_CODE_PTR:
        all = []
    elif t.target().strip_typedefs().code == gdb.TYPE_CODE_PTR:
        all = ["**" + name, "(*%s)->g" % name, "(*%s)[0].in.y[0]" % name, "&(*%s)->d" % name]
    else:
        all = ["*" + name] + [name + p for p in ("->b", "->f", "->in.y[1][0]", "[0].c[1]", "->t")] + ["(*%s).g" % name, "&%s->d" % name]
    return {path: lambda path=path: gdb.parse_and_eval(path) for path in all}


def is_own(t):
    while t.code == gdb.TYPE_CODE_PTR:
        t = t.target().strip_typedefs()
    return t.code == gdb.TYPE_CODE_STRUCT and t.name == "own"


def reached(frame, symbols):
    out = {}
    for name, s in symbols.items():
        try:
            if not re.match(r"\w+$", name):
                continue
            v = s.value(physical(frame))
            for path, value in (own if is_own(v.type.strip_typedefs()) else paths)(name, v).items():
                out[path] = told(value)
        except WHYS:
            pass
    return out


GENERAL = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip eflags fs_base".split()


def registers(frame):
    out = {r: int(frame.read_register(r)) & (1 << 64) - 1 for r in GENERAL}
    vectors = []
    for i in range(16):
        halves = frame.read_register("xmm%d" % i)["v2_int64"]
        vectors.append("".join("%016x" % (int(halves[k]) & (1 << 64) - 1) for k in (1, 0)))
    return {"general": out, "vectors": vectors}


def report():
    """Tells what is seen here, on a line of its own: gdb may have begun one. False where there is no source."""
    frame = gdb.newest_frame()
    try:
        symbols = seen(frame)
    except RuntimeError:
        return False
    values = {name: told(lambda: s.value(physical(frame))) for name, s in symbols.items()}
    for name, s in symbols.items():
        values[name]["param"] = s.is_argument
    function = frame.function()
    print("\n" + json.dumps({"at": frame.pc(), "function": function.name if function else "", "registers": registers(frame), "values": values, "paths": reached(frame, symbols)}), flush=True)
    sys.stdin.readline()
    return True


def runs():
    return gdb.selected_inferior().pid != 0


def stops(job):
    """Goes on to the places, and yields at each one where it is to be looked."""
    points = {at: gdb.Breakpoint("*%d" % at, internal=True) for at in job["places"]}
    hits = {}
    while True:
        gdb.execute("continue", to_string=True)
        if not runs():
            return
        at = gdb.newest_frame().pc()
        hits[at] = hits.get(at, 0) + 1
        if at in points and hits[at] == job["hits"]:
            points[at].delete()
        elif at in points and job["skip"]:
            points[at].ignore_count = int(random.expovariate(1 / job["skip"]))
        if job["walks"] == 0:
            yield
        for _ in range(job["walks"]):
            gdb.execute("stepi %d" % (1 + int(random.expovariate(1 / job["steps"]))), to_string=True)
            if not runs():
                return
            yield


def look():
    gdb.execute("set confirm off")
    gdb.execute("set breakpoint pending off")
    gdb.execute("set breakpoint always-inserted on")
    try:
        gdb.execute("tbreak main.main", to_string=True)
    except gdb.error:
        gdb.execute("tbreak main", to_string=True)
    gdb.execute("run %s < /dev/null > /dev/null" % os.environ["GDB_ARGUMENTS"], to_string=True)
    gdb.execute("set scheduler-locking step")
    print("pid %d" % gdb.selected_inferior().pid, flush=True)
    job = json.loads(sys.stdin.readline())
    random.seed(job["seed"])
    left = job["stops"]
    try:
        for _ in stops(job):
            left -= report()
            if left == 0:
                gdb.execute("kill")
                break
    except gdb.error as e:
        if "No such process" not in str(e):  # else it ends while gdb looks: its threads do one by one
            raise
    print("\ntold", flush=True)


look()
