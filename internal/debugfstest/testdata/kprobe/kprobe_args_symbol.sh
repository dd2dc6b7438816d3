# What lies at a symbol, in all types.
for width in 8 16 32 64; do
	put kprobe_events "p:testprobe target @number:u$width @number:s$width @number:x$width @number:b4@4/$width"
	put events/kprobes/testprobe/enable 1
	call target 1
	put events/kprobes/testprobe/enable 0
	digits=$((width / 4))
	want=$(printf 0x1122334455667788 | tail -c $digits)
	same "$(arg arg3 testprobe)" "0x$want"
	same "$(printf %x "$(arg arg2 testprobe)" | tail -c $digits)" "$want"
	same "$(printf %x "$(arg arg1 testprobe)")" "$want"
	same "$(arg arg4 testprobe)" 8
	clear_trace
done
put kprobe_events 'p:testprobe target @text:string len=@text+3:char'
put events/kprobes/testprobe/enable 1
call target 1
put events/kprobes/testprobe/enable 0
has "arg1=\"test\" len='t'$" trace
