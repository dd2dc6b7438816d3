// A library for modules to load, with -shared -fPIC. Its constructor and its destructor call
// functions of its own; each adds to counts that the program has, if it offers them.
__attribute__((weak)) extern long built, wrecked;

#define REAL __attribute__((noinline, noipa))

#ifdef SPOILED // so that no probe can be in front of it, and nobody may call it
__asm__(".globl plugged\n.type plugged,@function\nplugged: .byte 0x06\nret\n.size plugged,.-plugged");
long plugged(long v);
#else
REAL long plugged(long v) { return 29 * v + 1; }
#endif
REAL long build(long v) { return 7 * v; }
REAL long wreck(long v) { return 11 * v; }
// calls goes on after plugged, so there is a return address in the library.
REAL long calls(long v) { return plugged(v) + plugged(v + 1); }

__attribute__((constructor)) static void begin(void)
{
	long v = build(6);
	if (&built)
		__atomic_add_fetch(&built, v, __ATOMIC_SEQ_CST);
}

__attribute__((destructor)) static void end(void)
{
	long v = wreck(6);
	if (&wrecked)
		__atomic_add_fetch(&wrecked, v, __ATOMIC_SEQ_CST);
}
