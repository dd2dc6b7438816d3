# An event's filter is for recording: triggers see all hits.
put kprobe_events 'p:here target v=$arg1:s64'
put events/kprobes/here/enable 1
put events/kprobes/here/filter 'v > 5'
put events/kprobes/here/trigger hist:keys=common_pid:vals=v
for i in 1 5 6 7; do call target $i; done
has 'hitcount: *4  v: *19$' events/kprobes/here/hist
lines 2 ' here: ' trace
put events/kprobes/here/filter 'v > 6'
clear_trace
for i in 1 5 6 7; do call target $i; done
has 'hitcount: *8  v: *38$' events/kprobes/here/hist
lines 1 ' here: ' trace
: >events/kprobes/here/trigger
call target 1
call target 7
lines 2 ' here: ' trace
put events/kprobes/here/filter 0
call target 1
lines 3 ' here: ' trace
put events/kprobes/here/enable 0
