# Arguments that are taken, and those that are not.
good() { for one; do put kprobe_events "p target $one"; done; }
bad() { for one; do cant put kprobe_events "p target $one"; done; }
address=0x$(nm "$PREY" | sed -n 's/^0*\([0-9a-f]*\) D number$/\1/p')

good %ax
bad %ex
good @number "@$address" @number+10 @number-10
bad @ @deaqswdefr '@number*10' @number/10 @number%10 '@number&10' '@number|10'
good '$stack' '$stack0' '$stack1'
bad '$stackp' '$stack0+10' '$stack1-10'
put kprobe_events 'r target $retval'
bad '$retval'
good '$comm'
good '+0(%ax)' '-0(%ax)' '+10($stack)' '+0($stack1)' '+10(@number-10)' '+0(+10(+20($stack)))'
bad '+(%ax)' '(%ax+10)' '-(%ax)' '(%ax)' '+10($comm)' '+0(%ax)+10'
good varname=%ax
bad varname=varname2=%ax
good %ax:x16
bad %ax::x16 %ax:y16 x16:%ax
good '$comm:string' '+0($stack):string'
bad '$comm:x64' '$stack:string' %ax:string
