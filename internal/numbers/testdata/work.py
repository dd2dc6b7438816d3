# Work for an interpreter: something of most of what it has.
import collections
import json
import re
import struct


class Point:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __lt__(self, other):
        return (self.x, self.y) < (other.x, other.y)

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)


class Failed(Exception):
    pass


def primes(n):
    sieve = bytearray(b"\1") * n
    for i in range(2, n):
        if sieve[i]:
            yield i
            sieve[i * i :: i] = bytes(len(range(i * i, n, i)))


def fails(depth):
    if depth == 0:
        raise Failed("at the end")
    try:
        fails(depth - 1)
    except Failed as e:
        raise Failed(str(depth)) from e


def once(k):
    points = sorted(Point((i * 37 + k) % 101, i) for i in range(40))
    total = sum(points[1:], points[0]) if False else points[0]
    for p in points:
        total = total + p
    words = collections.Counter(re.findall(r"(\w+)(?=[ ,.])", "a text, with some words. a text of %d words, or so." % k))
    text = json.dumps({"words": words, "k": k, "list": [1.5, None, True, "\u20ac\n"], "big": 3**200 // (k + 7)}, sort_keys=True, indent=1)
    assert json.loads(text)["k"] == k
    packed = struct.pack("<hIqd5s", k % 1000, k, -k, k / 3, b"abc")
    numbers = {f"{n:>5x}|{n!r}": n ** 2 % 17 for n in primes(60)}
    chosen = {n for n in numbers.values() if n & 1} | frozenset((1, 2, k))
    try:
        fails(3)
    except Failed as e:
        chosen.add(str(e.__cause__))
    left, *middle, right = [complex(a, -a) for a in range(5)]
    matched = [m.group(0)[::-1].upper().encode("utf-16") for m in re.finditer("[a-f]+", text)]
    return total.x, packed, chosen, left * right, divmod(-k, 7), matched, text.split("\n", 3), max(numbers, key=numbers.get), hash((k, text)), "%s %05d %.3e" % (left, k, k / 7)


for k in range(200):
    once(k)
