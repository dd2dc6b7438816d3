# How many calls are followed at once.
cant put kprobe_events a:myprobe target
cant put kprobe_events r1000000:myprobe target
cant put kprobe_events r10fuzz:myprobe target
for kind in r r10; do
	put kprobe_events $kind:myprobe target
	has myprobe kprobe_events
	folder kprobes/myprobe
	add kprobe_events -:myprobe
	put kprobe_events $kind target
	has '^r10:kprobes/r_target_0 target$' kprobe_events
	put kprobe_events
done
put kprobe_events r17:myprobe target
is 'r17:kprobes/myprobe target' kprobe_events
