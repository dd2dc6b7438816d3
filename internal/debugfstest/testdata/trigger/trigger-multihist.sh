# Several histograms of an event, and one of several events.
put kprobe_events 'p:here six a=$arg1:s64 s=@text:string'
add kprobe_events 'p:there target'
add events/kprobes/here/trigger hist:keys=a:vals=a
add events/kprobes/here/trigger hist:keys=s:vals=a
call values 4
call values 5
has '^{ a: *4 } hitcount: *1  a: *4$' events/kprobes/here/hist
has '^{ s: test  *} hitcount: *2  a: *9$' events/kprobes/here/hist
lines 2 '^# event histogram$' events/kprobes/here/hist

put events/kprobes/here/trigger hist:name=test_hist:keys=common_pid
call values 4
has test_hist events/kprobes/here/hist
put events/kprobes/there/trigger hist:name=test_hist:keys=common_pid
call target 4
same "$(cat events/kprobes/there/hist)" "$(cat events/kprobes/here/hist)"
has 'Hits: 2' events/kprobes/there/hist
