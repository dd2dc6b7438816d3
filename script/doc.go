// Package script runs scenarios: programs in Starlark that probe a process, act on its
// calls, and judge its behaviour. README.md is the reference for their authors.
//
//	sc, err := script.Load("scenario.star", script.Options{Session: s})
//	…                        // nothing is armed yet
//	err = sc.Arm()
//	sc.Run(ctx)              // timers, until stop(), the end of the process or of ctx
//	err = s.Close()
//	result := sc.Finish(script.Ending{…})
//
// Everything of a scenario runs on the session's tracer thread once it is armed:
// handlers while the thread that hit is stopped, timers between two stops. So a scenario
// needs no locks, and its globals stay mutable. Only Load, before, and Finish, after the
// session, run it on the caller's goroutine.
//
// A scenario can't hold the target up. Each call of one of its functions has a budget
// of steps (budget.go). Bulk operations count by their size, so that neither a loop nor
// a huge value is endless. An error in a handler is reported with its place in the
// source. The handler's probe is disabled, the target goes on, and the scenario has
// failed.
package script
