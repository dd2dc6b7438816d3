# Triggers with filters.
put kprobe_events 'p:here target v=$arg1:s64 w=$arg1:s32'
trigger=events/kprobes/here/trigger
add $trigger 'traceoff if v == 0'
call target 1
same "$(cat tracing_on)" 1
call target 0
same "$(cat tracing_on)" 0
put tracing_on 1
add $trigger '!traceoff'

cant add $trigger 'traceoff if a'
cant add $trigger 'traceoff if common_pid=0'
cant add $trigger 'traceoff if common_pid==b'
cant add $trigger 'traceoff if common_pid == v'
cant add $trigger 'traceoff if'
for filter in 'common_pid == 0' 'common_pid <= 0' 'common_pid >= 0' 'v >= 0 && w >= 0' 'v >= 0 || w >= 0'; do
	add $trigger "traceoff if $filter"
	is "traceoff:unlimited if $filter" $trigger
	add $trigger '!traceoff'
done
