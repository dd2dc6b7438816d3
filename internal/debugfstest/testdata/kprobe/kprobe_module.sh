# Events in a library, which comes and goes.
ask open "$PLUG"
put kprobe_events p:event0 plugged
folder kprobes/event0
add kprobe_events -:kprobes/event0
put kprobe_events p plug.so:plugged
folder kprobes/p_plug_so_plugged_0
put kprobe_events p:event1 plug.so:plugged
folder kprobes/event1
put kprobe_events p:kprobes1/event1 plug.so:plugged
folder kprobes1/event1

ask close
folder kprobes1/event1
has '\[GONE\]' ../kprobes/list
add kprobe_events p:event2 plug.so:plugged # defined while it isn't there
put events/kprobes1/event1/enable 1
ask open "$PLUG"
ask plug 6
same "$answer" 'ret 42'
lines 1 ' event1: (plugged+0' trace

ask close
put events/kprobes1/event1/enable 0
add kprobe_events -:kprobes1/event1
is 'p:kprobes/event2 plug.so:plugged' kprobe_events
