# Strings, also two of one event.
put kprobe_events 'p:testprobe length arg1=+0(%di):string'
put events/kprobes/testprobe/enable 1
call string 0
has 'arg1="test"$' trace
put events/kprobes/testprobe/enable 0
clear_trace
put kprobe_events 'p:testprobe length arg1=+0(%di):string arg2=+0(%di):string'
put events/kprobes/testprobe/enable 1
call string 0
has 'arg1="test" arg2="test"$' trace
put events/kprobes/testprobe/enable 0
