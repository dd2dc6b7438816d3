# Synthetic events are defined, listed, deleted.
put synthetic_events
add synthetic_events 'wakeup_latency u64 lat pid_t pid char comm[16]' 2>/dev/null && fail 'fields without a semicolon'
add synthetic_events 'wakeup_latency u64 lat; pid_t pid; char comm[16]'
is 'wakeup_latency	u64 lat; pid_t pid; char[16] comm' synthetic_events
is 's:synthetic/wakeup_latency	u64 lat; pid_t pid; char[16] comm' dynamic_events
folder synthetic/wakeup_latency
has '^print fmt: "lat=%Lu pid=%d comm=' events/synthetic/wakeup_latency/format
cant add synthetic_events 'wakeup_latency u64 lat'
cant add kprobe_events p:synthetic/wakeup_latency target
put events/synthetic/wakeup_latency/enable 1
cant add synthetic_events '!wakeup_latency'
cant put synthetic_events
put events/synthetic/wakeup_latency/enable 0
add synthetic_events '!wakeup_latency'
nofolder synthetic/wakeup_latency
cant add synthetic_events '!wakeup_latency'
add dynamic_events 's:other u64 lat'
add dynamic_events p:probe target
add dynamic_events -:other
is 'p:kprobes/probe target' dynamic_events
add dynamic_events 's:other u64 lat'
add dynamic_events '!s:other u64 lat'
hasnt other dynamic_events
add dynamic_events 's:other u64 lat'
put dynamic_events
hasnt . dynamic_events
