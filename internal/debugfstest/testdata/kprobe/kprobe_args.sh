# Arguments have names of their own unless they are given, and their values are recorded.
put kprobe_events 'p:testprobe target $stack $stack0 +0($stack)'
is 'p:kprobes/testprobe target arg1=$stack arg2=$stack0 arg3=+0($stack)' kprobe_events
put events/kprobes/testprobe/enable 1
call target 9
put events/kprobes/testprobe/enable 0
lines 1 'testprobe: (target+0x[04]/0x[0-9a-f]*) arg1=0x[0-9a-f]* arg2=0x[0-9a-f]* arg3=0x[0-9a-f]*$' trace
same "$(arg arg2 testprobe)" "$(arg arg3 testprobe)"
add kprobe_events -:testprobe
nofolder kprobes/testprobe
clear_trace
hasnt testprobe trace
