package debugfs

const readme = `
tracing mini-HOWTO, as far as the files are there for a process:

# echo 0 > tracing_on : stop recording; 1 : go on
# cat trace           : what is recorded; > trace clears it
# cat trace_pipe      : the same, consumed, and what comes

 Important files:
  kprobe_events, uprobe_events, dynamic_events
			- Create/append/remove/show the dynamic events
			  echo one definition a line; > deletes all that are there
	Format: p[:[<group>/][<event>]] <place> [<args>]
		r[maxactive][:[<group>/][<event>]] <place> [<args>]
		-:[<group>/][<event>]
	place: [<module>:]<symbol>[+<offset>]|<memaddr>
	place (kretprobe): [<module>:]<symbol>[+<offset>]%return|<memaddr>
	place (uprobe): <path>:<offset>[%return][(ref_ctr_offset)]
	 args: <name>=fetcharg[:type]
	 fetcharg: (%<register>|$<efield>), @<address>, @<symbol>[+|-<offset>],
		   $stack<index>, $stack, $retval, $comm, $arg<N>,
		   +|-[u]<offset>(<fetcharg>), \imm-value, \"imm-string"
		   <argname>[->field[->field|.field...]]
	 type: s8/16/32/64, u8/16/32/64, x8/16/32/64, char, string, symbol,
	       b<bit-width>@<bit-offset>/<container-size>, ustring,
	       symstr, <type>\[<array-size>\], and by parameters' own types
	       f32/64, sb<bit-width>@<bit-offset>/<container-size>
  synthetic_events	- events that histograms make: <name> <type> <field>[;...]
  kprobe_profile, uprobe_profile
			- hits and misses of each event
  error_log		- what was wrong with the last commands; > clears it
  events/		- a directory for each group and event:
      enable		- 0 or 1
      filter		- field op value, && || !, parentheses; 0 clears it
      format		- the fields of the event
      trigger		- commands[:count] [if filter], ! removes:
	    traceon, traceoff, snapshot, stacktrace,
	    enable_event:<system>:<event>, disable_event:<system>:<event>,
	    enable_hist:<system>:<event>, disable_hist:<system>:<event>,
	    hist:keys=<field1[,field2,...]>[:values=<field1[,field2,...]>]
	      [:sort=<field1[,field2]>[.descending]][:size=#entries]
	      [:<var1>=<field|var_ref|numeric_literal>[,<var2>=...]]
	      [:pause][:continue][:clear][:name=histname1][:nohitcount]
	      [:<handler>.<action>]
	    handlers: onmatch(<system>.<event>), onmax($var), onchange($var)
	    actions: <synthetic_event>(<params>), trace(<synthetic_event>,<params>),
		     save(<field>[,<field>...]), snapshot()
	    modifiers: .hex .sym .sym-offset .execname .syscall .log2
		       .buckets=<n> .usecs .percent .graph
      hist		- the histograms of the event
  set_event, available_events
			- events that are on, and all
  set_event_pid		- threads whose events are recorded; > clears it
  options/stacktrace	- 1: each event is followed by its stack
  available_filter_functions
			- functions that can be probed
  snapshot		- echo 1 takes a copy of the trace, 0 frees it
  buffer_size_kb	- room for the trace
`
