# Characters, alone and in arrays.
put kprobe_events 'p:testprobe length arg1=+0(%di):char arg2=+0(%di):char[4]'
put events/kprobes/testprobe/enable 1
call string 0
put events/kprobes/testprobe/enable 0
has "arg1='t' arg2={'t','e','s','t'}$" trace
