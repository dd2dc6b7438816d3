// Package testsize says how much the tests are to do. It has no build constraint,
// since tests of pure rooms use it on every host.
//
// There are three sizes: quick, for make quick; usual, for make test; and torture,
// for make torture, which takes hours. GOKPROBE_ROUNDS names one of them, and
// GOKPROBE_TORTURE, when it is set to anything, is torture.
package testsize

import "os"

// Rounds returns the number that belongs to the size of this run. Other numbers of
// a test than its rounds may depend on the size, too. A GOKPROBE_ROUNDS that names
// no size panics: a mistyped torture must not pass for one.
func Rounds(quick, usual, torture int) int {
	switch size() {
	case "torture":
		return torture
	case "quick":
		return quick
	}
	return usual
}

// Torture reports whether the long tests were asked for.
func Torture() bool { return size() == "torture" }

func size() string {
	if os.Getenv("GOKPROBE_TORTURE") != "" {
		return "torture"
	}
	switch s := os.Getenv("GOKPROBE_ROUNDS"); s {
	case "":
		return "usual"
	case "quick", "usual", "torture":
		return s
	default:
		panic("GOKPROBE_ROUNDS=" + s + ": it is quick, usual or torture")
	}
}
