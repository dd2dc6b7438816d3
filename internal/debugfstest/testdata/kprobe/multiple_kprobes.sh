# 256 probes at once, on instructions behind the functions' first.
for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
	for j in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
		echo "p:event_$i$j f$i$j"
	done
done >>kprobe_events
lines 256 '^p:kprobes/event_' kprobe_events
lines 256 'f[0-9a-f][0-9a-f]+0x[04] ' ../kprobes/list
put events/kprobes/enable 1
ask many
same "$answer" 'ret 32640'
put events/kprobes/enable 0
lines 256 ': event_[0-9a-f]*: (f[0-9a-f]*+' trace
lines 256 'event_[0-9a-f]* *1 *0$' kprobe_profile
put kprobe_events
hasnt . kprobe_events
