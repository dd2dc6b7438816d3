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
// An armed scenario runs on its sessions' tracer threads, one function at a time; several processes Join one.
// Each call has a budget of steps, so it can't hold a target up. What goes wrong in a handler disables its
// probe, and the scenario has failed.
package script
