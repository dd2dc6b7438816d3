# Events of uprobes in the file of all kinds; they record, too.
put dynamic_events
add dynamic_events "p:myevent $PREY:$OFFSET v=%di:s64"
has "^p:uprobes/myevent $PREY:0x0*${OFFSET#0x} v=%di:s64\$" dynamic_events
has myevent uprobe_events
hasnt myevent kprobe_events
folder uprobes/myevent
put events/uprobes/myevent/enable 1
call target 33
put events/uprobes/myevent/enable 0
lines 1 'myevent: (0x[0-9a-f]*) v=33$' trace
has "^  $PREY  *myevent  *1$" uprobe_profile
add dynamic_events -:myevent
nofolder uprobes/myevent
hasnt . dynamic_events
