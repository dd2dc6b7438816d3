# Parameters by their names (of DWARF here).
put dynamic_events
add dynamic_events 'p:one target v'
add dynamic_events 'p:two six a f sum=e'
add dynamic_events 'p:all six $arg*'
add dynamic_events 'r:back target $retval:s64 v'
has '^p:kprobes/one target v=v' dynamic_events
put events/kprobes/enable 1
call target 33
call values 2
put events/kprobes/enable 0
lines 1 'one: (target+0x[04]/.*) v=33$' trace
lines 1 'two: (six+0x[04]/.*) a=2 f=7 sum=4$' trace
lines 1 'all: (six+0x[04]/.*) a=2 b=3 c=4 d=-2 e=4 f=7$' trace
lines 1 'back: (.* <- target) arg1=11 v=33$' trace
put dynamic_events
