// Package hostile holds tests with files and journals that were made to harm their
// reader: real ones with a damaged structure, and bombs. It also has running programs
// that try to make the command allocate or search without end. A process of its own
// reads each and is measured: no panic, no more than five seconds of processor time, no
// more than 512 MB.
package hostile
