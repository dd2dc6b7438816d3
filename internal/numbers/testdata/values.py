# gdb's opinion of values in a process that it is attached to. GDB_JOB names a JSON file with the functions: where
# their values are to be looked at, and which. The answers are lines of JSON: of each function, and of each return.
import json
import math
import os
import re

import gdb

UNKNOWN = "?"  # the one key of an object in the place of a value that gdb does not know, which says why
RESULT = "$retval"
REFERENCES = (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF)


class Unknown(Exception):
    pass


WHYS = (Unknown, gdb.error, ValueError, KeyError)


# Classes of libraries that we show by what they hold, or as a pointer.
LIBRARY = re.compile(r"(std|alloc|core::(ptr|slice|cell|num))::")

# So much is told of a text and of an array: more than we show.
MOST_BYTES, MOST_ELEMENTS = 80, 9


def text(at, length=None):
    """The text at an address, which ends at a zero if it has no length. What is not there ends it, too, but at its beginning."""
    b = bytearray()
    while len(b) < (MOST_BYTES if length is None else min(length, MOST_BYTES)):
        try:
            c = bytes(gdb.selected_inferior().read_memory(at + len(b), 1))
        except gdb.MemoryError:
            if not b:
                raise
            break
        if length is None and c == b"\0":
            break
        b += c
    return b.decode(errors="replace")


def is_char(t):
    return t.strip_typedefs().unqualified().name == "char"


def elements(v):
    return first(v, MOST_ELEMENTS)


def first(v, most):
    low, high = v.type.strip_typedefs().range()
    return [v[i] for i in range(low, min(high + 1, low + most))]


def letters(v):
    return bytes(int(c) & 0xFF for c in first(v, MOST_BYTES)).split(b"\0")[0].decode(errors="replace")


def walk(v, steps):
    """What members' names lead to, through pointers and references."""
    for name in steps:
        code = v.type.strip_typedefs().code
        if code in REFERENCES:
            v = v.referenced_value()
        elif code == gdb.TYPE_CODE_PTR:
            v = v.dereference()
        v = v[name]
    return v


def real(f):
    """A number, or a text where JSON has no such number."""
    if math.isnan(f):
        return "NaN"
    if math.isinf(f):
        return "+Inf" if f > 0 else "-Inf"
    return f


def scalar(v, of, is_number):
    """A value as JSON has it: as a fetch argument if is_number, else by its type. of makes the values in it."""
    if v.is_optimized_out:
        raise Unknown("optimized out")
    t = v.type.strip_typedefs()
    if t.code in REFERENCES or t.code == gdb.TYPE_CODE_PTR and str(t).startswith("&") and not is_number:  # Rust's are pointers
        return scalar(v.dereference() if t.code == gdb.TYPE_CODE_PTR else v.referenced_value(), of, is_number)
    if t.code == gdb.TYPE_CODE_FLT:
        return real(float(v))
    if t.code == gdb.TYPE_CODE_ARRAY:
        return letters(v) if is_char(t.target()) else [of(e) for e in elements(v)]
    if t.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return structure(v, t, of)
    if t.code == gdb.TYPE_CODE_PTR and is_char(t.target()):
        try:
            return text(int(v))
        except gdb.MemoryError:
            if is_number:
                raise
    if is_number:
        return int(v)
    if t.code == gdb.TYPE_CODE_PTR and re.match(r"map<", t.target().name or ""):
        raise Unknown("Go's maps are pointers to gdb")
    if t.code == gdb.TYPE_CODE_BOOL:
        return bool(int(v))
    if t.code == gdb.TYPE_CODE_ENUM:
        return enumerator(v)
    if t.code == gdb.TYPE_CODE_PTR:
        return hex(int(v))
    if t.code == gdb.TYPE_CODE_CHAR and t.sizeof == 4:
        return chr(int(v))
    return int(v)


def enumerator(v):
    """The name of a value, or those of its bits; its number if they do not make it up."""
    names = [n.split("::")[-1] for n in re.findall(r"[\w:]+", str(v))]
    return int(v) if "unknown" in str(v) or not all(re.match(r"[A-Za-z_]", n) for n in names) else "|".join(names)


def structure(v, t, of):
    fields = [f for f in t.fields() if hasattr(f, "bitpos")]  # others are static
    names = [f.name for f in fields]
    if names == ["data_ptr", "length"] and t.name != "&str":  # Rust's slices
        return [of((v["data_ptr"] + i).dereference()) for i in range(min(int(v["length"]), MOST_ELEMENTS))]
    if names in (["str", "len"], ["data_ptr", "length"]):  # texts of Go and Rust
        return text(int(v[names[0]]), int(v[names[1]]))
    if names == ["array", "len", "cap"]:  # Go's slices
        return [of(v["array"][i]) for i in range(min(int(v["len"]), MOST_ELEMENTS))]
    if names in (["_type", "data"], ["tab", "data"]):
        raise Unknown("Go's interfaces are two words to gdb")
    if names == [None]:
        raise Unknown("gdb finds no variant")
    if names and names[0] is None:  # an enumeration with data of Rust's: its number, and the one member that it has
        return variant(names[1], v[names[1]], of)
    if len(names) == 1 and t.fields()[0].type.name == "%s::%s" % (t.name, names[0]):  # one that has no other member
        return variant(names[0], v[names[0]], of)
    if LIBRARY.match(str(t.unqualified())):
        raise Unknown("a class of the library")
    return {member(f): of(v[f]) for f in fields}


def member(f):
    """A member's name; a class from which others inherit is known by its own, without those around it."""
    return re.sub(r"^(\w+::)*", "", f.name) if f.is_base_class else f.name or f.type.name or "?"


def variant(name, v, of):
    names = [f.name for f in v.type.fields()]
    if not names:
        return name
    if names[0] != "__0":
        return {name: {n: of(v[n]) for n in names}}
    values = [of(v[n]) for n in names]
    return {name: values if len(values) > 1 else values[0]}


def number(v):
    return scalar(v, number, True)


def typed(v):
    def part(e):
        try:
            return typed(e)
        except WHYS as why:
            return {UNKNOWN: str(why)}

    return scalar(v, part, False)


def in_frame(name):
    """Whether debug information has one place for a parameter all the time, which the function itself fills."""
    found = re.search(r"DW_OP_fbreg (-?\d+)|frame base .*offset .*\+(-?\d+)", gdb.execute("info address " + name, to_string=True))
    return found and int(found[1] or found[2]) < 0


def root(function, ask):
    if function["first"] and in_frame(ask["root"]):
        raise Unknown("not filled at the first instruction")
    return gdb.selected_frame().read_var(ask["root"])


def answer(function, result=None):
    values = {}
    for ask in function["asks"]:
        if (ask["root"] == RESULT) != (result is not None):
            continue
        try:
            v = walk(root(function, ask) if result is None else result, ask["steps"])
            values[ask["key"]] = {"value": number(v) if ask["number"] else typed(v)}
        except WHYS as why:
            values[ask["key"]] = {"why": str(why) or "?"}
    return json.dumps({"function": function["name"], "values": values}) + "\n"


def main():
    with open(os.environ["GDB_JOB"]) as f:
        job = json.load(f)
    ended = []  # by the signal that says so
    gdb.execute("handle SIGUSR1 stop print nopass", to_string=True)
    gdb.events.stop.connect(lambda e: ended.append(e) if isinstance(e, gdb.SignalEvent) else None)
    for f in job["functions"]:
        gdb.Breakpoint("*%d" % f["at"], internal=True)
    functions = {f["at"]: f for f in job["functions"]}
    returns = []
    with open(job["answers"], "w") as out:
        print("armed", flush=True)
        while True:
            gdb.execute("continue", to_string=True)
            if ended:
                break
            for r in [r for r in returns if r[1].return_value is not None]:
                out.write(answer(r[0], r[1].return_value))
                returns.remove(r)
            f = functions.pop(gdb.selected_frame().pc(), None)  # once: what stands in a loop's head would be hit again
            if f:
                out.write(answer(f))
                if f["returns"]:
                    returns.append((f, gdb.FinishBreakpoint(gdb.newest_frame(), internal=True)))
    gdb.execute("detach")
    print("told", flush=True)


if "GDB_JOB" in os.environ:
    main()
