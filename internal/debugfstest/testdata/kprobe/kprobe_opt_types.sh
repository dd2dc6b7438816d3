# Where jumps are allowed some probe of a function is one.
optimized() { grep -c '\[OPTIMIZED\]' ../kprobes/list || true; }
put kprobe_events p:plain target
put events/kprobes/plain/enable 1
ask settle
if test "$(cat ../sys/debug/kprobes-optimization)" = 1; then
	same "$(optimized)" 1
	put ../sys/debug/kprobes-optimization 0
	same "$(optimized)" 0
	put ../sys/debug/kprobes-optimization 1
	ask settle
	same "$(optimized)" 1
else
	same "$(optimized)" 0
fi
put events/kprobes/plain/enable 0
