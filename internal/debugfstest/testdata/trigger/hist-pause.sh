# Paused, continued, cleared, and switched by another event.
put kprobe_events 'p:here target v=$arg1:s64'
add kprobe_events 'p:there target2'
trigger=events/kprobes/here/trigger
hist=events/kprobes/here/hist
add $trigger hist:keys=v:pause
call target 1
has 'Hits: 0$' $hist
has '\[paused\]$' $trigger
add $trigger hist:keys=v:continue
call target 1
has 'Hits: 1$' $hist
add events/kprobes/there/trigger disable_hist:kprobes:here
call target2 1
call target 1
has 'Hits: 1$' $hist
add events/kprobes/there/trigger '!disable_hist:kprobes:here'
add events/kprobes/there/trigger enable_hist:kprobes:here
call target2 1
call target 1
has 'Hits: 2$' $hist
add $trigger hist:keys=v:clear
has 'Hits: 0$' $hist
