# Where gdb stops for each function of a program that it runs. When it has told the process's ID and the functions' names it is told those to look at,
# and answers with the places of each.
import json
import os
import re
import sys

import gdb


# Functions whose names compilers make up, and gdb writes in its own way.
NAMELESS = re.compile(r"^std::|lambda|\$_|operator\(\)|_GLOBAL__|__static_init")


def functions_at(pc):
    """The function with code at pc, and those that are inlined there."""
    block = gdb.block_for_pc(pc)
    while block is not None and not block.is_static and not block.is_global:
        if block.function is not None:
            yield block.function
        block = block.superblock


def names(file):
    """The names of all functions of a file that have code, without parameters."""
    lines = gdb.lookup_global_symbol("main").symtab.linetable()
    all = {f.name for line in lines for f in functions_at(line.pc) if os.path.basename(f.symtab.filename) == file}
    return sorted({re.sub(r"\(.*", "", n) for n in all if not NAMELESS.search(n)})


def is_in(name, pc):
    """Whether a function of pc is described in the named one: gdb takes `f(int)::$_0::operator()` for f, too."""
    return any(re.match(re.escape(name) + r"\(.*\)::", f.name) for f in functions_at(pc))


def stops(name):
    point = gdb.Breakpoint("-qualified -function %s" % name, internal=True)
    try:
        return [l.address for l in point.locations if l.address and not is_in(name, l.address)]
    finally:
        point.delete()


def main():
    gdb.execute("set confirm off")
    gdb.execute("set breakpoint pending off")
    gdb.execute("tbreak main", to_string=True)
    gdb.execute("run < /dev/null > /dev/null", to_string=True)
    print("pid %d" % gdb.selected_inferior().pid, flush=True)
    file = json.loads(sys.stdin.readline())["file"]
    print("\n" + json.dumps({"names": names(file)}), flush=True)
    for name in json.loads(sys.stdin.readline()):
        try:
            told = {"name": name, "places": stops(name)}
        except gdb.error as e:
            told = {"name": name, "why": str(e)}
        print("\n" + json.dumps(told), flush=True)
        sys.stdin.readline()
    gdb.execute("kill")
    print("\ntold", flush=True)


main()
