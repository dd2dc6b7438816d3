# Several actions of a histogram.
put synthetic_events 'one u64 v'
add synthetic_events 'two u64 v; u64 w'
put kprobe_events 'p:in six a=$arg1:s64 e=$arg5:u64'
put events/kprobes/in/trigger 'hist:keys=common_pid:x=a,y=e:onmatch(kprobes.in).one($x):onmax($y).trace(two,$x,$y):onchange($x).save(e)'
has ':onmatch(kprobes.in).one($x):onmax($y).trace(two,$x,$y):onchange($x).save(e) \[active\]$' events/kprobes/in/trigger
put events/synthetic/enable 1
for i in 2 5 3; do call values $i; done
lines 3 ' one: ' trace
lines 2 ' two: ' trace
has '	max: *25' events/kprobes/in/hist
has '	changed: *3  e: *9$' events/kprobes/in/hist
put events/synthetic/enable 0
