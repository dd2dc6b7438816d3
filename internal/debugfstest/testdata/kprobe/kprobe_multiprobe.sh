# Several probes of one event.
one='p:kprobes/testevent target'
two='p:kprobes/testevent target2'
add kprobe_events "$one"
add kprobe_events "$two"
has "^$one\$" kprobe_events
has "^$two\$" kprobe_events
put events/kprobes/testevent/enable 1
call target 3
call target2 3
put events/kprobes/testevent/enable 0
lines 1 'testevent: (target+' trace
lines 1 'testevent: (target2+' trace

add kprobe_events -:kprobes/testevent # all of them
hasnt . kprobe_events

add kprobe_events "$one"
add kprobe_events "$two"
add kprobe_events '-:kprobes/testevent target' # one
is "$two" kprobe_events

cant add kprobe_events "$one \$stack" # other arguments
cant add kprobe_events "$two"         # the same once more
cant add kprobe_events 'r:kprobes/testevent target'
is "$two" kprobe_events
