# Errors of histograms with variables are told.
put synthetic_events 'latency u64 lat'
put kprobe_events 'p:in six a=$arg1:s64'
put events/kprobes/in/trigger 'hist:keys=common_pid:ts0=common_timestamp'
cant add events/kprobes/in/trigger 'hist:keys=a:ts0=common_timestamp'
has 'hist:kprobes:in: error: Variable already defined$' error_log
check_error hist:kprobes:in events/kprobes/in/trigger 'hist:keys=a:y=$^nosuch'
