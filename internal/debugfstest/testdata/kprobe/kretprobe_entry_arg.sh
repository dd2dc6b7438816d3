# A return's event tells the argument of the entry.
put kprobe_events 'p:in target v=$arg1:s64'
add kprobe_events 'r:out target v=$arg1:s64 r=$retval:s64'
put events/kprobes/enable 1
call target 42
put events/kprobes/enable 0
same "$(arg v in)" 42
same "$(arg v out)" 42
has 'out: (.* <- target) v=42 r=14$' trace
