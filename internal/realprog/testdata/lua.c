// A work of the Lua interpreter.
#include "work.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

static const char script[] =
	"local out = {}\n"
	"local function put(...) for _, v in ipairs{...} do out[#out + 1] = tostring(v) end end\n"
	"local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n"
	"put(fib(6))\n"
	"local sieve, primes = {}, 0\n"
	"for i = 2, 60 do if not sieve[i] then primes = primes + 1; for j = i * i, 60, i do sieve[j] = true end end end\n"
	"put(primes)\n"
	"local x, y = 7, 2.5\n"
	"for i = 1, 5 do x = (x * 1103515245 + 12345) & 0x7fffffff; y = y * 1.25 - x % 17 / 3 + (x // 7 ~ i) % 5; put(x, y, -x >> 3, x << 2 | 1, ~x) end\n"
	"for i = 3.5, 0.5, -0.75 do put(i, i ^ 2, i // 1, i % -2) end\n"
	"local Class = setmetatable({}, {__call = function(c, v) return setmetatable({v = v}, c) end})\n"
	"Class.__index = Class\n"
	"Class.__add = function(a, b) return Class(a.v + b.v) end\n"
	"Class.__lt = function(a, b) return a.v < b.v end\n"
	"Class.__eq = function(a, b) return a.v == b.v end\n"
	"Class.__concat = function(a, b) return 'C' .. tostring(a.v or a) end\n"
	"Class.__len = function(a) return a.v end\n"
	"Class.__close = function(a) put('closed', a.v) end\n"
	"function Class:get(...) return self.v, select('#', ...) end\n"
	"local sum = Class(0)\n"
	"for i = 1, 5 do local c <close> = Class(i); sum = sum + c; put(c < sum, c == sum, c .. 'x', #c, c:get(1, nil, 3)) end\n"
	"local co = coroutine.wrap(function(a) for i = 1, 5 do a = coroutine.yield(a * i) end return 'end' end)\n"
	"for i = 1, 6 do put(co(i)) end\n"
	"local words = {}\n"
	"for w in ('the quick brown fox jumps over the lazy dog'):gmatch('%a+') do words[#words + 1] = w end\n"
	"table.sort(words, function(a, b) return #a < #b or #a == #b and a > b end)\n"
	"put(table.concat(words, ','), pcall(error, {}) , select(2, pcall(error, 'oops', 0)))\n"
	"local function va(...) local a, b = ...; local t = {n = select('#', ...), ...}; return b, a, t.n, t[3] end\n"
	"put(va(1, 2, 3), va(), (va('a', 'b')))\n"
	"local i = 0\n"
	"repeat i = i + 1; if i == 5 then goto continue end; put(not i, i ~= 3, i <= 4, i >= 2.5) ::continue:: until i > 7\n"
	"while true do i = i - 1; if i < 0 then break end end\n"
	"put(string.format('%5.2f|%d|%s|%q', 3.14159, 42, 'x', 'a\\nb'), ('x'):rep(20, '-'))\n"
	"collectgarbage()\n"
	"return (table.concat(out, ' '):gsub('0x%x+', 'ADDRESS'):gsub('table: %S+', 'TABLE'))\n";

static void run(void)
{
	lua_State *l = luaL_newstate();
	size_t n = 0;

	luaL_openlibs(l);
	if (luaL_dostring(l, script)) {
		CHECK(!"the script runs");
		dprintf(2, "lua: %s\n", lua_tostring(l, -1));
	}
	const char *s = lua_tolstring(l, -1, &n);
	CHECK(n > 500);
	digest_bytes(s, n);
	lua_close(l);
}

int main(void)
{
	static const struct work works[] = {{"run", run, NULL}, {NULL, NULL, NULL}};

	return serve(works);
}
