# All memory is the user's here: u and ustring read as the others do, and tell what can't be read.
put kprobe_events 'p:testprobe peek s=+0(%di):ustring u=+u0(%di):u8 t=+u0(%di):string'
put events/kprobes/testprobe/enable 1
call good 1
has 's="test" u=116 t="test"$' trace
clear_trace
call bad 1
has 's=(fault) u=0 t=(fault)$' trace
put events/kprobes/testprobe/enable 0
