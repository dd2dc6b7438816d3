# Where a probe may stand: a symbol, an address, an offset; none in front of the symbol.
base=0x$(sed -n "s|^\([0-9a-f]*\)-.* 00000000 .*$PREY\$|\1|p" "/proc/$PID/maps" | head -n 1)
at() { printf '%d' "0x$(nm "$PREY" | sed -n "s/^0*\([0-9a-f]*\) T $1\$/\1/p")"; }
next=$(($(at target2) - $(at target)))
put kprobe_events p:testprobe target
put kprobe_events "p:testprobe $(printf '0x%x' $((base + $(at target))))"
put kprobe_events "p:testprobe target+$next"
put events/kprobes/testprobe/enable 1
call target2 3
put events/kprobes/testprobe/enable 0
has 'testprobe: (target2+0x[04]/' trace
cant put kprobe_events "p:testprobe target-$next"
cant put kprobe_events "p:testprobe target+$(printf '0x%x' -$next)"
