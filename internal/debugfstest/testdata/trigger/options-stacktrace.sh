# With the option every entry is followed by its stack; what can be probed is listed.
has '^inner$' available_filter_functions
has '^malloc \[libc' available_filter_functions
put kprobe_events p:before inner
put events/kprobes/before/enable 1
put options/stacktrace 1
add kprobe_events 'r:behind inner $retval'
put events/kprobes/behind/enable 1
same "$(cat options/stacktrace)" 1
call outer 2
same "$answer" 'ret 11'
lines 2 '<stack trace>$' trace
lines 2 '^ => outer$' trace
lines 1 ' behind: .* arg1=10$' trace
cant put options/stacktrace 2
put options/stacktrace 0
clear_trace
call outer 2
hasnt 'stack trace' trace
lines 1 ' before: ' trace
put events/kprobes/enable 0
