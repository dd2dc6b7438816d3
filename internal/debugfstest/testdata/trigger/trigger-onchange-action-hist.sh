# What a value was when it last changed.
put kprobe_events 'p:here six a=$arg1:s64 e=$arg5:u64'
put events/kprobes/here/trigger 'hist:keys=common_pid:new=e:vals=a:onchange($new).save(a)'
for i in 2 4 4; do call values $i; done
has '	changed: *16  a: *4$' events/kprobes/here/hist
has 'hitcount: *3  a: *10$' events/kprobes/here/hist
has 'onchange($new).save(a) \[active\]$' events/kprobes/here/trigger
