# Expressions of numbers, and what is wrong with them.
put kprobe_events 'p:here target v=$arg1:s64'
trigger=events/kprobes/here/trigger
test_hist_expr() { # EXPRESSION VALUE
	put $trigger "hist:keys=common_pid:x=$1"
	has ":x=$2:" $trigger
	: >$trigger
}
test_hist_expr 123 123
test_hist_expr 16-8-4-2 2
test_hist_expr 64/8/4/2 1
test_hist_expr 16-8+4+2 14
test_hist_expr '4*3/2*2' 12
test_hist_expr '4+3*2-2' 8
test_hist_expr 4+6/2-2 5
bad() { check_error hist:kprobes:here $trigger "$1"; }
bad 'hist:keys=common_pid:x=32+^10*3/20-4'
bad 'hist:keys=common_pid:x=^1+2+3+4+5'
bad 'hist:keys=common_pid:x=-(^1)+2'
bad 'hist:keys=common_pid:x=3/^0'
