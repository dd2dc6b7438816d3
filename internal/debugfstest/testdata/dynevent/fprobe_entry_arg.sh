# What was passed is there at the return (the kernel's test has fprobes; here there are kprobes only).
put dynamic_events
add dynamic_events 'r:leave six a=$arg1:s64 d=$arg4:s64 f=$arg6:s64 r=$retval:s64'
put events/kprobes/leave/enable 1
call values 2
call values 3
put events/kprobes/leave/enable 0
lines 1 ' <- six) a=2 d=-2 f=7 r=18$' trace
lines 1 ' <- six) a=3 d=-3 f=7 r=25$' trace
