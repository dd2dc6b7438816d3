package realprog

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// bashScript does its work once for each line it reads, the name of a file for the
// results.
const bashScript = `
set -u
traps=0
trap 'traps=$((traps + 1))' USR1
fib() { if (($1 < 2)); then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
work() {
  local i word from sum=0 before=$traps
  declare -A seen=()
  for ((i = 0; i < 500; i++)); do sum=$((sum + i * i % 7)); done
  echo "sum $sum"
  while read -r word; do seen[$word]=$((${seen[$word]:-0} + 1)); done <<'END'
one
two
one
END
  echo "seen ${seen[one]} ${seen[two]}"
  echo "fib $(fib 5)"
  for i in 1 2 3 4 5; do kill -USR1 $$; done
  echo "traps $((traps - before))"
  seq 1 200 | sort -rn | tail -3
  (exit 7); echo "status $?"
  sleep 0.01 & wait $!; echo "job $?"
  cat <<END | tr a-z A-Z
here-document of ${#word} and $((6 * 7))
END
  # COPROC goes with its process: what is read after that end needs a descriptor of its own.
  coproc { cat; }; exec {from}<&"${COPROC[0]}"
  echo through >&"${COPROC[1]}"; eval "exec ${COPROC[1]}>&-"; read -r word <&"$from"; exec {from}<&-; wait
  echo "$word"
  diff <(echo a; echo b) <(echo a; echo c)
  ( trap 'echo bye' EXIT; false || exit 3 ); echo "status $?"
  /bin/sh -c 'kill -9 $$'; echo "status $?"
  case $word in thr*) echo matched;; esac
  [[ abc123 =~ ([a-z]+)([0-9]+) ]] && echo "${BASH_REMATCH[2]}-${BASH_REMATCH[1]}"
}
while read -r out; do work >"$out" 2>&1; echo "done $?"; done
`

// killedPID is where bash prints a number that is never the same, in at least five
// columns: between 9999 and 10000 the blanks change too.
var killedPID = regexp.MustCompile(` *\d+ Killed`)

// TestBash: a script with forks, pipes, traps, jobs and here-documents.
func TestBash(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) { testBash(t, follow) })
	}
}

func testBash(t *testing.T, follow bool) {
	tools := requires(t, "bash")
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	write(t, script, bashScript)
	prog := start(t, dir, tools[0], "--norc", script)
	run := 0
	specs := []string{"execute_command_internal", "execute_command", "make_child", "evalexp", "xmalloc", "libc.so.6:fork", "libc.so.6:read"}
	campaign{
		pid:   prog.PID(),
		opts:  kprobes.Options{Follow: follow},
		specs: specs,
		work: func(t testing.TB) string {
			t.Helper()
			run++
			out := filepath.Join(dir, fmt.Sprint("out", run))
			if got := prog.Do(out, "done"); got != "done 0" {
				t.Errorf("the script says %q", got)
			}
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			return killedPID.ReplaceAllString(string(b), " PID Killed")
		},
		counts: func(t testing.TB, h hits) {
			if h["make_child"] < h["libc.so.6:fork"] {
				t.Errorf("%d children, but %d forks", h["make_child"], h["libc.so.6:fork"])
			}
		},
		// The loop around the work is in none of these.
		same: []string{"evalexp", "make_child", "libc.so.6:fork"},
	}.run(t)
	prog.Quit()
}
