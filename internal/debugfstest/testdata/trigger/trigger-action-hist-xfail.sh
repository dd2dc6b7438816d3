# Actions that are refused.
put kprobe_events 'p:in six a=$arg1:s64'
trigger=events/kprobes/in/trigger
cant put $trigger 'hist:keys=a:onmatch(kprobes.in)'
cant put $trigger 'hist:keys=a:onmatch(kprobes.in).nosuch(a)'
cant put $trigger 'hist:keys=a:onmax(a).save(common_pid)'
cant put $trigger 'hist:keys=a:x=a:onmax($y).save(common_pid)'
cant put $trigger 'hist:keys=a:x=a:onmatch(kprobes.in).save(common_pid)'
cant put $trigger 'hist:keys=a:x=a:onsomething($x).save(common_pid)'
has Available $trigger
