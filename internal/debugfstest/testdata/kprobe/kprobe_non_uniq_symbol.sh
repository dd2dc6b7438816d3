# A name that several functions have can't be probed; their addresses can.
cant put kprobe_events p twin
has 'The symbol is not unique' error_log
for address in $(nm "$PREY" | sed -n 's/^0*\([0-9a-f]*\) t twin$/\1/p'); do
	base=$(sed -n "s|^\([0-9a-f]*\)-.* 00000000 .*$PREY\$|\1|p" "/proc/$PID/maps" | head -n 1)
	add kprobe_events "p $(printf '0x%x' $((0x$base + 0x$address)))"
done
lines 2 '^p:kprobes/p_0x[0-9a-f]* 0x[0-9a-f]*$' kprobe_events
put events/kprobes/enable 1
call twins 3
same "$answer" 'ret 9'
lines 2 '(twin+0x0/' trace
put events/kprobes/enable 0
