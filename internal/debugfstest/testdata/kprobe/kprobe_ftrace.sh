# Two tools on one function, in all orders of switching them on and off (the kernel's are a kprobe event and
# the function tracer; here they are a kprobe event and one of uprobes).
put kprobe_events p:one target
put uprobe_events "p:two $PREY:$OFFSET"
one=events/kprobes/one/enable
two=events/uprobes/two/enable
hits() { # ONE TWO: which of them record a call
	clear_trace
	call target 30
	same "$answer" 'ret 10'
	lines "$1" ' one: ' trace
	lines "$2" ' two: ' trace
}
hits 0 0
put $one 1; hits 1 0
put $two 1; hits 1 1
put $one 0; hits 0 1
put $one 1; hits 1 1
put $two 0; hits 1 0
put $one 0; hits 0 0
put $two 1; hits 0 1
put $one 1; hits 1 1
put $one 0
put $two 0; hits 0 0
