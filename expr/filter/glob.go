package filter

// matchGlob tells whether text is as pattern says: * stands for any bytes, ? for one, [a-z] and [!a-z]
// for one of these or of the others, \x for x. A bracket that is not closed is itself (as lib/glob.c of
// the kernel).
func matchGlob(pattern, text string) bool {
	p, t := 0, 0
	backP, backT := -1, 0 // behind the last *, and where it may still end
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			backP, backT = p, t
			continue
		}
		n, ok := 0, false
		if p < len(pattern) {
			n, ok = matchByte(pattern[p:], text[t])
		}
		switch {
		case ok:
			p, t = p+n, t+1
		case backP < 0:
			return false
		default:
			backT++
			p, t = backP, backT
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchByte tells whether c is what pattern begins with, and how long that is.
func matchByte(pattern string, c byte) (n int, ok bool) {
	switch {
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == c
	case pattern[0] == '[':
		if n, ok, is := matchClass(pattern, c); is {
			return n, ok
		}
	}
	return 1, pattern[0] == c
}

// matchClass is matchByte for [...]. is tells that pattern begins with that.
func matchClass(pattern string, c byte) (n int, ok, is bool) {
	i, inverted := 1, false
	if i < len(pattern) && pattern[i] == '!' {
		i, inverted = i+1, true
	}
	for first := i; ; {
		if i >= len(pattern) {
			return 0, false, false
		}
		if pattern[i] == ']' && i > first {
			return i + 1, ok != inverted, true
		}
		lo := pattern[i]
		hi := lo
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			hi = pattern[i+2]
			i += 2
		}
		ok = ok || lo <= c && c <= hi
		i++
	}
}
