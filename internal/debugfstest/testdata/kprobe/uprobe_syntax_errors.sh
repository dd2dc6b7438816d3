# Each error is told with its place.
bad() { check_error trace_uprobe uprobe_events "$1"; }
bad 'p ^/non_exist_file:100'
bad 'p ^/sys:100'
bad 'p /bin/sh:^10a'
bad 'p /bin/sh:10(^1a)'
bad 'p /bin/sh:10(10^'
bad 'p /bin/sh:10(10)^a'
bad 'p /bin/sh:10 ^@+ab'
bad 'p /bin/sh:10 ^@symbol'
bad 'p:^/bar /bin/sh:10'
bad 'p /bin/sh:10^%hoge'
bad 'p /bin/sh:10 ^$retval'
