# Emptying one kind's file leaves the other kinds (the kernel's test has synthetic events; here there are uprobes).
setup_events() {
	add dynamic_events p:myevent1 target
	add dynamic_events "p:latency1 $PREY:$OFFSET"
	add dynamic_events r:myevent2 target
	add dynamic_events "r:latency2 $PREY:$OFFSET"
	for name in myevent1 myevent2 latency1 latency2; do has $name dynamic_events; done
}
put dynamic_events
setup_events
put uprobe_events
has myevent1 dynamic_events
has myevent2 dynamic_events
hasnt latency dynamic_events
put dynamic_events

setup_events
put kprobe_events
hasnt myevent dynamic_events
has latency1 dynamic_events
has latency2 dynamic_events
put dynamic_events
hasnt . dynamic_events
