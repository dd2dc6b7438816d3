# An event switches another one on and off, which is in soft mode meanwhile.
put kprobe_events p:here target
add kprobe_events p:there target2
trigger=events/kprobes/here/trigger
has enable_event $trigger

add $trigger enable_event:kprobes:there
same "$(cat events/kprobes/there/enable)" '0*'
call target2 3
hasnt there: trace
call target 3
same "$(cat events/kprobes/there/enable)" '1*'
call target2 3
lines 1 there: trace
hasnt ' here:' trace
add $trigger '!enable_event:kprobes:there'
same "$(cat events/kprobes/there/enable)" 1 # as the trigger left it

add $trigger disable_event:kprobes:there
same "$(cat events/kprobes/there/enable)" '1*'
call target 3
same "$(cat events/kprobes/there/enable)" '0*'
clear_trace
call target2 3
hasnt there: trace
add $trigger '!disable_event:kprobes:there'
same "$(cat events/kprobes/there/enable)" 0

cant add $trigger enable_event:nogroup:noevent
cant add $trigger disable_event+1
add $trigger enable_event:kprobes:there
cant add $trigger enable_event:kprobes:there
cant add $trigger disable_event:kprobes:there
cant put kprobe_events # it has triggers
add $trigger '!enable_event:kprobes:there'
put kprobe_events
