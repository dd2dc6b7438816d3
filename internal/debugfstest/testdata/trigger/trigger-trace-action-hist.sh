# The keyword trace, and a synthetic event when a value is the greatest.
put synthetic_events 'big u64 e; s64 a;'
put kprobe_events 'p:here six a=$arg1:s64 e=$arg5:u64'
put events/kprobes/here/trigger 'hist:keys=common_pid:most=e:onmax($most).trace(big,$most,a)'
put events/synthetic/big/enable 1
for i in 3 2 7 5; do call values $i; done
lines 2 ' big: ' trace
lines 1 ' big: e=49 a=7$' trace
has '	max: *49$' events/kprobes/here/hist
has 'onmax($most).trace(big,$most,a) \[active\]$' events/kprobes/here/trigger
put events/synthetic/big/enable 0
