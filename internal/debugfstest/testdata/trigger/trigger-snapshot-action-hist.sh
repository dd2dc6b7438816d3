# A snapshot when a value is the greatest.
put kprobe_events 'p:here six a=$arg1:s64 e=$arg5:u64'
put events/kprobes/here/enable 1
put events/kprobes/here/trigger 'hist:keys=common_pid:big=e:onmax($big).snapshot()'
for i in 2 9 3; do call values $i; done
has 'triggering value { onmax($big) }: *81' events/kprobes/here/hist
has 'triggered by event with key: { common_pid:' events/kprobes/here/hist
has 'here: .* a=2 ' snapshot
hasnt 'here: .* a=3 ' snapshot
put events/kprobes/here/enable 0
