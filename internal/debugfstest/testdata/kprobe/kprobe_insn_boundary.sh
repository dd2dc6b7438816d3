# Of a function's first 256 bytes only the boundaries of instructions are taken, and all of those may be
# probed at once.
taken=0
for offset in $(seq 0 255); do
	if (add kprobe_events "p:at_$offset main+$offset") 2>/dev/null; then
		taken=$((taken + 1))
	else
		has 'BAD_INSN_BNDRY\|Probe point is not an instruction boundary' error_log
	fi
done
test $taken -gt 20 || fail "only $taken offsets are taken"
test $taken -lt 200 || fail "$taken offsets are taken"
put events/kprobes/enable 1
ask settle
call target 30
same "$answer" 'ret 10'
has ': at_[0-9]*: (main+' trace
put events/kprobes/enable 0
