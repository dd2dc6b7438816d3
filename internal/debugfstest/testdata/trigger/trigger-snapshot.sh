# A copy of the trace.
put kprobe_events 'p:here target v=$arg1:s64'
trigger=events/kprobes/here/trigger
put events/kprobes/here/enable 1
add $trigger 'snapshot:1 if v == 2'
call target 1
hasnt here: snapshot
call target 2
call target 2
has 'here: .* v=1$' snapshot
is 'snapshot:count=0 if v == 2' $trigger
cant add $trigger 'snapshot'
cant add $trigger 'snapshot+1'
add $trigger '!snapshot'
put events/kprobes/here/enable 0
