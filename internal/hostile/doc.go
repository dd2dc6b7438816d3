// Package hostile holds the tests with files and journals that were made to harm who reads them: real ones, changed where their structure is,
// and bombs; and with running programs that would have the command allocate or look without end. A process of its own reads each and is measured: no
// panic, no more than five seconds of processor time, no more than 512 MB.
package hostile
