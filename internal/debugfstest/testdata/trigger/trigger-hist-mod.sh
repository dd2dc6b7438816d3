# Histograms with modifiers.
put kprobe_events 'p:here six a=$arg1:s64 e=$arg5:u64 caller=+0($stack):u64'
trigger=events/kprobes/here/trigger
hist=events/kprobes/here/hist
run() { for i in 1 10 10 60; do call values $i; done; }

put $trigger hist:keys=common_pid.execname
run
has "common_pid: prey  *\[ *$PID\] } hitcount: *4" $hist
put $trigger hist:keys=a.hex
run
has 'a: 3c } hitcount: *1' $hist
put $trigger hist:keys=a.syscall
run
has 'a: sys_mprotect  *\[ 10\] } hitcount: *2' $hist
put $trigger hist:keys=e.log2
run
has 'e: ~ 2^7  } hitcount: *2' $hist
put $trigger hist:keys=e.buckets=100
run
has 'e: ~ 100-199 } hitcount: *2' $hist
put $trigger hist:keys=caller.sym
run
has 'caller: \[[0-9a-f]*\] values  *} hitcount: *4' $hist
put $trigger hist:keys=caller.sym-offset
run
has 'caller: \[[0-9a-f]*\] values+0x[0-9a-f]*/0x[0-9a-f]*  *} hitcount: *4' $hist
put $trigger hist:keys=a:vals=e.percent,hitcount.graph:nohitcount
run
has '^{ a: *10 }  e (%):   5.26  hitcount: #* *$' $hist
put $trigger hist:keys=stacktrace
run
has '^         values+0x' $hist
