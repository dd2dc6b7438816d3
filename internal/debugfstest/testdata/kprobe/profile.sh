# What an event has counted.
hasnt myevent kprobe_profile
put kprobe_events p:myevent target
has '^  myevent  *0  *0$' kprobe_profile
put events/kprobes/myevent/enable 1
call target 1
call target 1
has '^  myevent  *2  *0$' kprobe_profile
put events/kprobes/myevent/enable 0
call target 1
has '^  myevent  *2  *0$' kprobe_profile
put kprobe_events
hasnt myevent kprobe_profile
