# What the kernel's tools/testing/fault-injection/failcmd.sh does for a command, step by step, with its options.
FAULTATTR=$(cd ../"${FAILCMD_TYPE:-fail_function}" && pwd)

defaults() {
	put "$FAULTATTR"/task-filter N
	put "$FAULTATTR"/probability 0
	put "$FAULTATTR"/times 1
}

failcmd() { # OPTION…: then target(30) is called five times
	defaults
	task_filter=Y probability=1 times=1
	for option; do
		value=${option#*=}
		case $option in
		--probability=*) probability=$value ;;
		--times=*) times=$value ;;
		--task-filter=*) task_filter=$value ;;
		--*) name=${option%%=*} && put "$FAULTATTR/${name#--}" "$value" ;;
		esac
	done
	put "$FAULTATTR"/task-filter "$task_filter"
	put "$FAULTATTR"/probability "$probability"
	put "$FAULTATTR"/times "$times"
	all=
	for i in 1 2 3 4 5; do
		call target 30
		all="$all ${answer#ret }"
	done
	defaults
}

put "$FAULTATTR"/inject target
put "$FAULTATTR"/target/retval -5
make_it_fail="$FAULTATTR/tasks/$PID/make-it-fail"

failcmd --probability=100
same "$all" ' 10 10 10 10 10' # the task filter is on by default
put "$make_it_fail" 1
failcmd --probability=100
same "$all" ' -5 10 10 10 10'
failcmd --probability=100 --times=3 --verbose=0
same "$all" ' -5 -5 -5 10 10'
failcmd --probability=100 --times=-1 --interval=2
same "$all" ' 10 -5 10 -5 10'
failcmd --probability=100 --times=-1 --interval=1 --space=3
same "$all" ' 10 10 -5 -5 -5'
failcmd --probability=100 --times=-1 --space=0 --require-start=0x1000 --require-end=0x2000
same "$all" ' 10 10 10 10 10'
failcmd --probability=100 --times=-1 --require-start=0x0 --require-end=0xffffffffffffffff --reject-start=0x1000 --reject-end=0xffffffffffffffff
same "$all" ' 10 10 10 10 10'
failcmd --probability=100 --times=-1 --reject-end=0x0 --stacktrace-depth=0
same "$all" ' -5 -5 -5 -5 -5'
put "$make_it_fail" 0
failcmd --probability=100 --times=-1
same "$all" ' 10 10 10 10 10'
failcmd --probability=100 --times=1 --task-filter=N
same "$all" ' -5 10 10 10 10'
cant put "$FAULTATTR"/probability all
is 0 "$FAULTATTR"/probability
