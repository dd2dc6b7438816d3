# 128 arguments are taken, 129 are not.
check_max_args() { # the event
	all=$1
	for i in $(seq 1 128); do all="$all \\$i"; done
	add dynamic_events "$all"
	put dynamic_events
	cant add dynamic_events "$all \\129"
	hasnt . dynamic_events
}
check_max_args 'p target'
check_max_args 'r target'
check_max_args "p $PREY:$OFFSET"
