// Package script runs scenarios: programs in Starlark that probe processes, act on their
// calls, and say whether what they saw was right. README.md is the reference of the language.
//
//	sc, err := script.Load("scenario.star", script.Options{Session: s})
//	…                        // nothing is armed yet
//	err = sc.Arm()
//	sc.Run(ctx)              // timers, until stop(), the end of the process or of ctx
//	err = s.Close()
//	result := sc.Finish(script.Ending{…})
//
// One scenario can be for several processes, which join and leave at any time:
//
//	sc, err := script.Load("scenario.star", script.Options{})
//	err = sc.Join(ctx, s1)   // before Arm: registered, and armed by it
//	err = sc.Arm()
//	go sc.Run(ctx)
//	err = sc.Join(ctx, s2)   // armed when it returns
//	err = sc.Leave(s1)
//	err = s1.Close()
//
// Its globals, counters and cases are there once, and what a handler sees and does is of the process of the hit.
// What a handler or timer declares or switches is done in its own process at once, and in the others soon.
//
// Handlers run on their sessions' tracer threads, one at a time: a handler waits while that of another process
// runs, but not while that one waits for a function of its process (ctx.call). Load and Finish run
// on the caller's goroutine, and timers on that of Run if there may be several processes. Each call of a function has
// a budget of steps, so it can't hold targets up. What goes wrong in a handler disables its probe, and the
// scenario has failed.
package script
