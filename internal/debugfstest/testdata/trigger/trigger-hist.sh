# Histograms: with values, several keys, strings, in an order.
put kprobe_events 'p:here six a=$arg1:s64 c=$arg3:u64 s=@text:string'
trigger=events/kprobes/here/trigger
hist=events/kprobes/here/hist
run() { for i in 1 2 3 2 1 1; do call values $i; done; }

put $trigger hist:keys=a:vals=c
run
has '^{ a: *1 } hitcount: *3  c: *9$' $hist
has '^{ a: *3 } hitcount: *1  c: *5$' $hist
has '^    Hits: 6$' $hist
add $trigger '!hist:keys=a:vals=c'
hasnt . $hist

put $trigger hist:keys=a,c
run
lines 3 '^{ a: *[123], c: *[345] } hitcount:' $hist
put $trigger hist:keys=s
run
has '^{ s: test  *} hitcount: *6$' $hist
put $trigger hist:keys=a,c:sort=c.ascending
run
same "$(sed -n 's/.* c: *\([0-9]*\) .*/\1/p' $hist | tr '\n' ' ')" '3 4 5 '
put $trigger hist:keys=a,c:sort=c.descending
run
same "$(sed -n 's/.* c: *\([0-9]*\) .*/\1/p' $hist | tr '\n' ' ')" '5 4 3 '
hasnt ' here:' trace
