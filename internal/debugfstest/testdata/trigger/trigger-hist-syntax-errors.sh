# What is wrong with a histogram, with its place.
put kprobe_events 'p:here target one=$arg1:s64 two=$arg2:s64'
bad() { check_error hist:kprobes:here events/kprobes/here/trigger "$1"; }
bad 'hist:keys=common_pid:vals=one:sort=common_pid,^junk'
bad 'hist:keys=common_pid:vals=one:^sort='
bad 'hist:keys=common_pid:vals=one:^sort=common_pid,'
bad 'hist:keys=common_pid:vals=one:sort=common_pid.^junk'
bad 'hist:keys=common_pid:vals=one,two:^sort=common_pid,one,two'
bad 'hist:keys=^nofield'
bad 'hist:keys=one.^nomodifier'
bad 'hist:keys=one:x=$^novariable'
