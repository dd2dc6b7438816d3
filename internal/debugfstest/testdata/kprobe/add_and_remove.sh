# An event that is defined is listed and has a folder, until the file is emptied.
put kprobe_events p:myevent target
is 'p:kprobes/myevent target' kprobe_events
folder kprobes/myevent
put kprobe_events
hasnt . kprobe_events
nofolder kprobes/myevent
