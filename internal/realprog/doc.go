// Package realprog holds tests only: programs that people run, at work under probes.
// Each does the same work unprobed, with boosted copies, with stepped ones, and
// unprobed again. The results must be equal, and the hits as many as the program itself
// counts. Afterwards the process must be as it was found.
//
// Others have calls of such programs fail (package inject), and ask of them what their documents
// promise.
//
// TestTargetsOutliveTheirTracer kills the command itself, at any moment, while it probes programs of many kinds: they must live on,
// correct. TestTargetsDoNotNoticeThatTheirTracerLeaves interrupts it. Both print a table by kind.
//
// A test whose program is not installed is skipped and names the package to install;
// make setup-test installs them.
package realprog
