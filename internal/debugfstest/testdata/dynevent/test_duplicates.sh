# A name is one event's: another kind, and the same once more, are refused.
put dynamic_events
add dynamic_events "p:ugroup/uevent $PREY:$OFFSET"
cant add dynamic_events "p:ugroup/uevent $PREY:$OFFSET"
add dynamic_events 'p:kgroup/kevent target file=$arg1'
cant add dynamic_events "p:kgroup/kevent $PREY:$OFFSET file=%di"
cant add dynamic_events 'p:kgroup/kevent target file=$arg1'
cant add dynamic_events 'p:ugroup/uevent target'
has 'Given group/event name is already used by another event' error_log
add dynamic_events -:kgroup/kevent
add dynamic_events -:ugroup/uevent
hasnt . dynamic_events
