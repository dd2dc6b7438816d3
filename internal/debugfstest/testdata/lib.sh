# What all scripts use. They run in the folder tracing with -e and -u; a script that comes to its end
# has passed. File descriptor 3 asks the test to have the program do something, 4 answers.

answer=

ask() { # COMMAND: what the program does, see prey.c; or settle: probes are optimized that can be
	echo "$*" >&3
	read -r answer <&4
}

call() { ask call "$@"; } # NAME NUMBER

fail() {
	echo "failed: $*" >&2
	exit 1
}

put() { # FILE TEXT…: opens the file with truncation
	file=$1
	shift
	printf '%s\n' "$*" >"$file"
}

add() { # FILE TEXT…: opens it for appending
	file=$1
	shift
	printf '%s\n' "$*" >>"$file"
}

cant() { # COMMAND…: it must fail
	if ("$@") 2>/dev/null; then fail "could: $*"; fi
}

has() { grep -q -e "$1" "$2" || fail "$2 has no $1: $(cat "$2")"; } # PATTERN FILE

hasnt() { if grep -q -e "$1" "$2"; then fail "$2 has $1: $(cat "$2")"; fi; }

is() { # WANT FILE: all of the file
	test "$(cat "$2")" = "$1" || fail "$2 is $(cat "$2"), not $1"
}

same() { test "$1" = "$2" || fail "$1 is not $2"; }

lines() { # COUNT PATTERN FILE
	n=$(grep -c -e "$2" "$3" || true)
	test "$n" -eq "$1" || fail "$n lines of $3 have $2, not $1: $(cat "$3")"
}

folder() { test -d "events/$1" || fail "no folder events/$1"; }

nofolder() { if test -d "events/$1"; then fail "folder events/$1 is there"; fi; }

clear_trace() { : >trace; }

arg() { # NAME EVENT: the argument's value in the event's line of the trace
	sed -n "s/.* $2: .* $1=\([^ ]*\).*/\1/p" trace
}

check_error() { # SYSTEM FILE COMMAND, in which ^ is where the caret must stand
	command=$(printf '%s' "$3" | tr -d '^')
	before=${3%%^*}
	: >error_log
	cant add "$2" "$command"
	has "^\[ *[0-9]*\.[0-9]*\] $1: error: " error_log
	want=$(printf '  Command: %s\n%*s^' "$command" $((11 + ${#before})) '')
	same "$(tail -n 2 error_log)" "$want"
}
