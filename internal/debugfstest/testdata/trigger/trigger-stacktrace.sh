# The stack of an event.
put kprobe_events 'p:here inner v=$arg1:s64'
trigger=events/kprobes/here/trigger
add $trigger stacktrace
call outer 1
has '<stack trace>' trace
has '^ => inner$' trace
has '^ => outer$' trace
clear_trace
add $trigger '!stacktrace'
add $trigger 'stacktrace:2 if v == 5'
call outer 4
hasnt 'stack trace' trace
for i in 1 2 3; do call outer 5; done
lines 2 'stack trace' trace
add $trigger '!stacktrace:2 if v == 5'
cant add $trigger stacktrace:foo
add $trigger stacktrace
cant add $trigger stacktrace
add $trigger '!stacktrace'
