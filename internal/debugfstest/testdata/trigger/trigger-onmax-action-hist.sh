# The time between two events: a variable of one is used by the other, and what was longest is kept.
put kprobe_events 'p:enter six a=$arg1:s64 s=@text:string'
add kprobe_events 'r:leave six r=$retval:s64 s=@text:string'
put events/kprobes/enter/trigger hist:keys=common_pid:ts0=common_timestamp.usecs
put events/kprobes/leave/trigger 'hist:keys=common_pid:lat=common_timestamp.usecs-$ts0:vals=$lat:onmax($lat).save(r,s)'
for i in 1 2 3; do call values $i; done
has '^{ common_pid: .* } hitcount: *3  lat: *[0-9]' events/kprobes/leave/hist
has '	max: *[0-9]*  r: *[0-9]*  s: test' events/kprobes/leave/hist
cant add events/kprobes/enter/trigger '!hist:keys=common_pid:ts0=common_timestamp.usecs' # in use
: >events/kprobes/leave/trigger
: >events/kprobes/enter/trigger
has Available events/kprobes/enter/trigger
