# The distribution of the time that calls take: two events match and make a third, of which there is a histogram.
put synthetic_events 'latency u64 lat; s64 arg; char name[16]'
put kprobe_events 'p:enter six a=$arg1:s64'
add kprobe_events 'r:leave six r=$retval:s64 text=@text:string'
put events/kprobes/enter/trigger hist:keys=common_pid:ts0=common_timestamp.usecs:first=a
put events/kprobes/leave/trigger 'hist:keys=common_pid:lat=common_timestamp.usecs-$ts0:onmatch(kprobes.enter).latency($lat,$first,text)'
has 'onmatch(kprobes.enter).latency($lat,$first,text) \[active\]$' events/kprobes/leave/trigger
for i in 1 2; do call values $i; done
hasnt latency: trace # nobody wants it
put events/synthetic/latency/trigger hist:keys=lat.log2:vals=arg:sort=lat
put events/synthetic/latency/enable 1
put events/synthetic/latency/filter 'arg > 3'
for i in 3 4 5; do call values $i; done
has '^{ lat: ~ 2^[0-9]* *} hitcount:' events/synthetic/latency/hist
has 'Hits: 3$' events/synthetic/latency/hist
lines 2 ' latency: lat=[0-9]* arg=[45] name=test$' trace

cant add synthetic_events '!latency'
cant put dynamic_events
check_error hist:kprobes:leave events/kprobes/leave/trigger 'hist:keys=common_pid:onmatch(kprobes.enter).latency($^nosuch,r,text)'
check_error hist:kprobes:leave events/kprobes/leave/trigger 'hist:keys=common_pid:onmatch(kprobes.enter).latency(^text,r,text)'
check_error hist:kprobes:leave events/kprobes/leave/trigger 'hist:keys=common_pid:onmatch(kprobes.enter).^latency(r)'
put events/synthetic/latency/enable 0
: >events/synthetic/latency/trigger
: >events/kprobes/leave/trigger
: >events/kprobes/enter/trigger
put dynamic_events
nofolder synthetic/latency
