# One word as a signed, an unsigned and a hexadecimal number, and some of its bits.
for width in 64 32 16 8; do
	put kprobe_events "p:testprobe target \$stack0:s$width \$stack0:u$width \$stack0:x$width \$stack0:b4@4/$width"
	folder kprobes/testprobe
	put events/kprobes/testprobe/enable 1
	call target 1
	put events/kprobes/testprobe/enable 0
	hexadecimal=$(printf %x "$(arg arg3 testprobe)")
	same "$(printf %x "$(arg arg1 testprobe)" | tail -c ${#hexadecimal})" "$hexadecimal"
	same "$(printf %x "$(arg arg2 testprobe)")" "$hexadecimal"
	same "$(printf %x "$(arg arg4 testprobe)")" "$(printf %03x 0x$hexadecimal | tail -c 2 | head -c 1)"
	add kprobe_events -:testprobe
	clear_trace
done
