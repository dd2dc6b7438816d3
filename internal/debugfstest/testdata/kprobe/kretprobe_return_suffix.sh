# Both forms of an event of returns are one.
put kprobe_events 'r:myprobe target'
before=$(cat kprobe_events)
put kprobe_events 'p:myprobe target%return'
is "$before" kprobe_events
put kprobe_events 'p:myprobe target+0%return'
is "$before" kprobe_events
