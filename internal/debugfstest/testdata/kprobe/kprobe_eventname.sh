# Names of events: made of the symbol, given, given with a group.
put kprobe_events p target
folder kprobes/p_target_0
put kprobe_events p:event1 target
folder kprobes/event1
put kprobe_events p:kprobes2/event2 target
folder kprobes2/event2
put kprobe_events p dotted.isra.0
is 'p:kprobes/p_dotted_isra_0_0 dotted.isra.0' kprobe_events
folder kprobes/p_dotted_isra_0_0
put kprobe_events p:group.event3 target
folder group/event3
