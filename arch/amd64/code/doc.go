// Package code generates machine code of ours for x86-64: slots, detours and what their bodies do, and
// the guard that handles signals when the tracer has died. Its Arch is that of package amd64 beside.
//
// "SDM" is as in package amd64.
//
// Not part of the public promise: any version may change it.
package code
