# Events of kprobes in the file of all kinds.
put dynamic_events
add dynamic_events p:myevent1 target
add dynamic_events 'r:myevent2 target2'
is 'p:kprobes/myevent1 target
r10:kprobes/myevent2 target2' dynamic_events
folder kprobes/myevent1
folder kprobes/myevent2
add dynamic_events -:myevent2
has myevent1 dynamic_events
hasnt myevent2 dynamic_events
nofolder kprobes/myevent2
put dynamic_events
hasnt . dynamic_events
nofolder kprobes/myevent1
