# A bad filter is told with its place, and the file holds the last eight errors.
put kprobe_events 'p:testprobe target v=$arg1:s64'
check_error 'event filter parse error' events/kprobes/testprobe/filter '((common_pid == 1) || (v & 2)) && (no ^== 3)'
put error_log
hasnt . error_log
for i in 1 2 3 4 5 6 7 8 9; do cant add kprobe_events "p none$i"; done
lines 8 'Command: p none' error_log
hasnt none1 error_log
