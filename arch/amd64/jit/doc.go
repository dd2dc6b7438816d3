// Package jit compiles programs to machine code of x86-64: the body of a detour that does what
// program.Checked.Run does.
//
// A program's registers become machine registers that are free, or that are saved. The
// compiler finds out by trying which it needs (compiler.generate). Values that are
// known beforehand are in the code alone. "SDM" is as in package amd64.
//
// Not part of the public promise: any version may change it.
package jit
