package script

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// nines is the text of an integer of far more than maxBits; large makes x, of almost as many.
var (
	nines = strings.Repeat("9", 500_000)
	large = "x = 1\nfor i in range(128): x = x << 511\nhalf = 1\nfor i in range(64): half = half << 511\nt = str(x)\n"
)

// tooLarge make integers of more than maxBits, each in its own way.
var tooLarge = []string{
	"int('9' * 500000)",
	"int('-' + '9' * 500000)",
	"int('0' * 500000 + '1')",
	"int('9' * 500000, 10)",
	"int('f' * 500000, 16)",
	"int('f' * 500000, base = 16)",
	"int(x = 'f' * 500000, base = 16)",
	"int('0x' + 'f' * 500000, 0)",
	"int('0b' + '1' * 500000, 0)",
	"int('1' * 500000, 2)",
	"int('1' * 65537, 2)",
	"int('7' * 500000, 8)",
	"int('z' * 500000, 36)",
	"int('9' * 20000)",
	"f = int\nf('9' * 500000)",
	"sorted(['9' * 500000], key = int)",
	"max('9' * 500000, '1', key = int)",
	"'%d' % int('f' * 500000, 16)",
	"json.decode('9' * 500000)",
	"json.decode('-' + '9' * 500000)",
	"json.decode('9' * 20000)",
	"json.decode('9' * 500000, default = None)",
	"json.decode('9' * 500000, None)",
	"getattr(json, 'decode')('9' * 500000)",
	"json.decode('[1, {\"a\\\\\"\": [\"\\\\\\\\\", ' + '9' * 500000 + ']}]')",
	"json.decode('{\"1\": ' + '9' * 500000 + '}')",
	"json.decode('[1.5e3, -' + '9' * 500000)",
	"x = " + nines,
	"x = -" + nines,
	"x = 0x" + nines,
	"x = 0x" + strings.Repeat("0", 70_000) + nines,
	"x = 0X" + strings.Repeat("fF", 250_000),
	"x = 0x" + strings.Repeat("f", 16385),
	"x = [1, {" + nines + ": 1}]",
	"x = [1][" + nines + "]",
	"x = [1]['0':" + nines + "]",
	"x = 'a'; y = r'9'; z = " + nines + " + 1",
	"def f(x = " + nines + "): pass",
	"def f():\n  return lambda x = 1: " + nines,
	"print(" + nines + ", end = " + nines + ")",
	"for i in [" + nines + "]: pass",
	"x = 1\nwhile True: x = x << 511",
	"x = 1\nwhile True: x <<= 511",
	"state.x = 1\nwhile True: state.x <<= 511",
	"x = 3\nwhile True: x = x << (511 + 0)",
	"x = 3\nwhile True: x *= x",
	"x = 3\nwhile True: x = x * x",
	"x = -3\nwhile True: x = x * -x",
	"x = 3\nwhile True: x *= 0x" + strings.Repeat("f", 1000),
	"x = 3\nwhile True: x = 0x" + strings.Repeat("f", 1000) + " * x",
}

// converted are expressions that convert x, of almost maxBits, to or from digits.
var converted = []string{
	"str(x)", "repr(x)", "print(x)", "print(1, x)", "'%d' % x", "'%s' % x", "'%r' % x", "'%x' % x", "'%o' % x", "'%d %d' % (1, x)", "'%(a)d' % {'a': x}",
	"'{}'.format(x)", "'{a}'.format(a = x)", "'{!r}'.format([x])", "getattr('{}', 'format')(x)",
	"str([x])", "str((x,))", "str({x: 1})", "str({1: x})", "str(set([x]))", "str(struct(a = x))", "str([[[x]]])", "repr(-x)", "str(~x)",
	"json.encode(x)", "json.encode([x])", "json.encode({'a': x})", "json.encode(struct(a = x))", "json.decode(t)", "json.decode('[' + t + ']')",
	"int(t)", "int(t, 10)", "int('-' + t)", "int(x = t)", "sorted([t], key = int)", "report(x)", "report(a = x)", "expect(True, str(x))",
	"x // half", "x % half", "half * half", "x ^ half", "[x] == [str(x)]",
}

// quick are expressions that take x, and are not to convert it, or end with an error.
var quick = []string{
	"hash(str(1))", "{x: 1}", "x in {x: 1}", "x in [x]", "x == half", "x < 1.5", "x > 1e308", "[x] == [half]", "x in range(10)", "set([x, half])", "-x", "~x", "x >> 511", "x | half", "x + 1", "x - half",
	"x + half", "bool(x)", "x and half", "type(x)", "min(x, half)", "sorted([x, half])", "float(x)", "x / 2", "x / half", "x // 1.5", "x % 1.5", "x * 1.5",
	"'%e' % x", "'%g' % x", "'%c' % x", "range(x)", "[1][x]", "[1][x:]", "[1][:x]", "'a' * x", "[1] * x", "1 << x", "x << -1", "chr(x)", "bytes([x])",
	"abs(x)", "enumerate([1], x)", "hash(x)", "math.floor(x)", "math.sqrt(x)", "math.pow(x, x)", "math.log(x, 2)", "time.from_timestamp(x)", "time.second * x", "time.parse_duration(t)",
	"time.time(year = x)", "random.int(0, x)", "random.chance(x)", "random.choice([x])", "signed(x)", "signed(1, x)", "symbol(x)", "kprobe(x)", "inject(x)", "after(x, print)",
	"counter(x)", "struct(a = x)", "int(float(t))", "float(t)", "float('9' * 500000)", "float('0.' + '9' * 500000)", "json.decode('0.' + '9' * 50000)", "json.decode('9' * 500000 + 'e1')", "int(1e308)",
	"'a'.find('a', x)", "'a'.split('a', x)", "[1].index(1, x)", "[1].insert(x, 1)", "[1].pop(x)", "phase(t)", "state.get(x)", "dict([(x, 1)])", "len(t)", "json.indent(t)",
}

// loadedIn is what load says, and the processor time it took.
func loadedIn(t *testing.T, src string, steps uint64) (*Error, time.Duration) {
	t.Helper()
	began := processorTime()
	_, _, e := loaded(t, src, func(o *Options) { o.Steps = steps })
	return e, processorTime() - began
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// slow is more than anything may take, on the slowest of machines.
const slow = 10 * time.Second

func excerpt(src string) string { return trimmed(strings.TrimPrefix(src, large)) }

func TestIntegersAreBounded(t *testing.T) {
	for _, src := range tooLarge {
		e, took := loadedIn(t, src, DefaultSteps)
		if e == nil || !strings.Contains(e.Message, errLargeInt.Error()) || e.Line == 0 || took > slow {
			t.Errorf("%s\nends with %.200v after %v", excerpt(src), e, took)
		}
	}
}

// TestConversionsOfIntegersAreCharged: a thousand with the default budget, here a quarter of each,
// are cut off.
func TestConversionsOfIntegersAreCharged(t *testing.T) {
	for _, src := range converted {
		e, took := loadedIn(t, large+"for i in range(250): "+src, 200_000)
		if e == nil || !strings.Contains(e.Message, "cut off") && !strings.Contains(e.Message, errLargeInt.Error()) || took > slow {
			t.Errorf("%s\nends with %.200v after %v", src, e, took)
		}
	}
}

func TestLargeIntegersTakeNoTimeElsewhere(t *testing.T) {
	for _, src := range quick {
		if e, took := loadedIn(t, large+"for i in range(1000): "+src, DefaultSteps); took > slow {
			t.Errorf("%s\nends with %.200v after %v", src, e, took)
		}
	}
}

// TestIntegersMayBeLarge: what the bound allows works as ever.
func TestIntegersMayBeLarge(t *testing.T) {
	for _, src := range []string{
		large + "expect(int(t) == x and json.decode(t) == x and '%d' % x == t and int('%x' % x, 16) == x, 'differs')",
		large + "expect(int('1' + '0' * 65535, 2) == half * half << 127, 'differs')",
		"x = '" + nines + "' # " + nines + "\nexpect(len(x) == 500000, 'is cut')",
		"x = r\"\\\"\\'" + nines + "\"\nexpect(len(x) == 500004, 'is cut')",
		"x" + nines + " = 0xffffffffffffffff & 0xdeadbeef",
		"x = 0x" + strings.Repeat("f", 16384) + "\nx = [x, -x, ~x]",
		"expect(json.decode('[\"' + '9' * 50000 + '\", 1' + '0' * 19000 + ', -1]')[2] == -1, 'differs')",
		"expect(int(1e308) == int('%d' % 1e308), 'differs')",
		"x = 1\nx <<= 40\nx <<= True + 1 if False else 2\nexpect(x == 1 << 42, 'differs')",
	} {
		if _, _, e := loaded(t, src); e != nil {
			t.Errorf("%s\nends with %.200v", excerpt(src), e)
		}
	}
}

func TestJSONIsNotDecodedTooDeep(t *testing.T) {
	for _, src := range []string{
		"json.decode('[' * 16000000)", "json.decode('{\"a\":' * 3000000)", "json.decode('[1, ' * 501 + ']' * 501)", "json.decode('[{\"a\": ' * 251, default = 1)",
	} {
		if _, _, e := loaded(t, src); e == nil || e.Message != errNested.Error() {
			t.Errorf("%s\nends with %.200v", src, e)
		}
	}
	if _, _, e := loaded(t, "x = json.decode('[' * 498 + '[[], {}, \"[[[\", {\"]]\": 1}]' + ']' * 498)\nfor i in range(498): x = x[0]\nexpect(x == [[], {}, '[[[', {']]': 1}], 'differs')"); e != nil {
		t.Error(e)
	}
}

// TestChainsAreBounded: the parser's own limit is about what is nested to the right.
func TestChainsAreBounded(t *testing.T) {
	for _, link := range []string{"(1)", ".b", "[0]", "+1", " and x", "[1:]"} {
		_, err := parse("chain.star", []byte("x = 1\ny = x"+strings.Repeat(link, 100000)+"\n"))
		if err == nil || !strings.Contains(err.Error(), "nested deeper than 500") {
			t.Errorf("x%s%s…: %v", link, link, err)
		}
		if _, err := parse("chain.star", []byte("x = 1\ny = x"+strings.Repeat(link, 400)+"\n")); err != nil {
			t.Errorf("x%s 400 times: %v", link, err)
		}
	}
}
