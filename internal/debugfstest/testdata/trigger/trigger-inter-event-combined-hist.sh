# Times between three events, and their sum.
put synthetic_events 'first u64 lat'
add synthetic_events 'both u64 lat; u64 first; u64 second'
put kprobe_events 'p:one outer'
add kprobe_events 'p:two inner'
add kprobe_events 'r:three outer'
put events/kprobes/one/trigger hist:keys=common_pid:ts1=common_timestamp
put events/kprobes/two/trigger 'hist:keys=common_pid:ts2=common_timestamp,lat1=common_timestamp-$ts1:onmatch(kprobes.one).first($lat1)'
put events/kprobes/three/trigger 'hist:keys=common_pid:lat2=common_timestamp-$ts2,one=$lat1,sum=$one+$lat2:onmatch(kprobes.two).both($sum,$one,$lat2)'
put events/synthetic/enable 1
for i in 1 2 3; do call outer $i; done
lines 3 ' first: lat=[0-9]*$' trace
lines 3 ' both: lat=[0-9]* first=[0-9]* second=[0-9]*$' trace
sed -n 's/.* both: lat=\([0-9]*\) first=\([0-9]*\) second=\([0-9]*\)$/\1 \2 \3/p' trace | while read -r sum one two; do
	same "$sum" $((one + two))
done
put events/synthetic/enable 0
