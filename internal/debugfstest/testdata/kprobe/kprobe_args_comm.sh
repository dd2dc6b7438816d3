# The thread's name.
put kprobe_events 'p:testprobe target comm=$comm'
is 'p:kprobes/testprobe target comm=$comm' kprobe_events
put events/kprobes/testprobe/enable 1
call target 1
put events/kprobes/testprobe/enable 0
has 'comm="prey"$' trace
