# Events that are enabled stay.
put kprobe_events p:myevent target
put events/kprobes/myevent/enable 1
cant put kprobe_events
folder kprobes/myevent
put events/kprobes/myevent/enable 0
put kprobe_events
nofolder kprobes/myevent
