# A variable that two events have is named with its event.
put kprobe_events 'p:one target v=$arg1:s64'
add kprobe_events 'p:two target2 v=$arg1:s64'
add kprobe_events 'p:three six a=$arg1:s64'
put events/kprobes/one/trigger hist:keys=common_pid:x=v
put events/kprobes/two/trigger hist:keys=common_pid:x=v
check_error hist:kprobes:three events/kprobes/three/trigger 'hist:keys=common_pid:y=$^x'
put events/kprobes/three/trigger 'hist:keys=common_pid:y=kprobes.two.$x:vals=$y'
call target 5
call target2 6
call values 1
has 'kprobes.two.x: *6$' events/kprobes/three/hist
