# Recording goes on and off.
put kprobe_events 'p:here target v=$arg1:s64'
trigger=events/kprobes/here/trigger
put tracing_on 0
add $trigger traceon
call target 1
same "$(cat tracing_on)" 1
add $trigger '!traceon'

add $trigger traceoff
call target 1
same "$(cat tracing_on)" 0
add $trigger '!traceoff'
put tracing_on 1

cant add $trigger traceoff+1
cant add $trigger 'traceoff:foo'
add $trigger traceoff
cant add $trigger traceoff
cant add $trigger traceon
add $trigger '!traceoff'

add $trigger 'traceoff:1 if v == 7' # once
call target 7
same "$(cat tracing_on)" 0
put tracing_on 1
call target 7
same "$(cat tracing_on)" 1
is 'traceoff:count=0 if v == 7' $trigger
add $trigger '!traceoff:1 if v == 7'
