# Returns, with the value that is returned.
put kprobe_events 'r:testprobe2 target $retval'
is 'r10:kprobes/testprobe2 target arg1=$retval' kprobe_events
folder kprobes/testprobe2
put events/kprobes/testprobe2/enable 1
call target 30
put events/kprobes/testprobe2/enable 0
has 'testprobe2: (.*+0x[0-9a-f]*/0x[0-9a-f]* <- target) arg1=10$' trace
add kprobe_events -:testprobe2
nofolder kprobes/testprobe2
