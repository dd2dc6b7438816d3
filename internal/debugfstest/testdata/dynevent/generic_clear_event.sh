# A definition with ! in front deletes that event and no other.
put dynamic_events
add dynamic_events p:myevent1 target
add dynamic_events "p:latency1 $PREY:$OFFSET"
add dynamic_events r:myevent2 target
add dynamic_events "p:latency2 $PREY:$OFFSET"

add dynamic_events '!p:myevent1 target'
hasnt myevent1 dynamic_events
for name in myevent2 latency1 latency2; do has $name dynamic_events; done
add dynamic_events "!$(grep latency1 dynamic_events)" # offsets are compared as they are listed
hasnt latency1 dynamic_events
for name in myevent2 latency2; do has $name dynamic_events; done
add dynamic_events '!r:myevent2 target'
hasnt myevent2 dynamic_events
has latency2 dynamic_events
add dynamic_events "!$(grep latency2 dynamic_events)"
hasnt . dynamic_events
cant add dynamic_events '!p:myevent1 target'
