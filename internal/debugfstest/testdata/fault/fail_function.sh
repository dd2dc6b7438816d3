# Documentation/fault-injection/fault-injection.rst: a function that fails, from its injection to the end.
cd ../fail_function
test -d ../error_injection
has '^target	ERRNO$' ../error_injection/list
cant put ../error_injection/list target
put inject target
is target inject
printf %#x -12 >target/retval
is fffffffffffffff4 target/retval
cant put target/retval 0
cant put inject target
cant put inject no_such_function
put task-filter N
put probability 100
put interval 0
put times -1
put space 0
put verbose 1
call target 30
same "$answer" 'ret -12'
put times 2
call target 30
call target 30
same "$answer" 'ret -12'
is 0 times
call target 30
same "$answer" 'ret 10'
put times -1
put interval 2
call target 30
same "$answer" 'ret 10'
call target 30
same "$answer" 'ret -12'
echo '!target' >inject
is '' inject
test ! -d target
call target 30
same "$answer" 'ret 10'
put inject target
put inject target2
echo >inject
is '' inject
put tasks/"$PID"/fail-nth 2
put inject target
put probability 0
call target 30
same "$answer" 'ret 10'
is 1 tasks/"$PID"/fail-nth
call target 30
same "$answer" 'ret -22'
is 0 tasks/"$PID"/fail-nth
same "$(cksum <injectable)" "$(cksum <../error_injection/list)"
