package realprog

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

const (
	fullDisks  = 200 // the n of "every nth pwrite fails"
	ledgerOld  = 10  // rows that are there before anything fails
	ledgerRows = 24  // rows that the shell then tries to add, each in its own transaction
)

// ledgerRow adds a row whose transaction changes several pages of the table and of its index.
func ledgerRow(id int) string {
	return fmt.Sprintf("INSERT INTO ledger VALUES (%d, printf('%%0400d', %d), replace(hex(zeroblob(4500)), '0', 'x'));\n", id, id*7919%97)
}

// ledger makes the database that every round begins with.
func ledger(t testing.TB, sqlite, path, mode string) []byte {
	t.Helper()
	script := "PRAGMA journal_mode = " + mode + ";\nCREATE TABLE ledger (id INTEGER PRIMARY KEY, name TEXT, amount TEXT);\n" +
		"CREATE INDEX by_name ON ledger (name);\n"
	for id := range ledgerOld {
		script += ledgerRow(id)
	}
	output(t, script, sqlite, "-bail", path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ledgerWork adds the rows: id's statement is on line id. (The cache is so small that transactions write
// before they commit, and the log so short that it is moved into the database now and then.)
func ledgerWork() string {
	lines := "PRAGMA synchronous = OFF; PRAGMA cache_size = 5; PRAGMA wal_autocheckpoint = 8;\n" + strings.Repeat("\n", ledgerOld-2)
	for id := ledgerOld; id < ledgerOld+ledgerRows; id++ {
		lines += ledgerRow(id)
	}
	return lines + ".print done\n"
}

var sqliteFailed = regexp.MustCompile(`^(?:Runtime|Parse) error near line (\d+): (.*)`)

// committed reads what the shell says until it is done, and returns the rows that must be there
// as the shell prints them: the old ones and those whose statements did not fail.
func committed(t testing.TB, prog *testprog.Prog) (rows string, fails int) {
	t.Helper()
	failed := map[int]bool{}
	for line := prog.Line(); line != "done"; line = prog.Line() {
		if m := sqliteFailed.FindStringSubmatch(line); m != nil {
			id, _ := strconv.Atoi(m[1])
			failed[id] = true
			switch m[2] {
			case "database or disk is full (13)":
			case "disk I/O error (10)": // the log's index could not grow (SQLITE_IOERR_SHMSIZE)
			default:
				t.Errorf("the shell says %q", line)
			}
		}
	}
	for id := range ledgerOld + ledgerRows {
		if id < ledgerOld || !failed[id] {
			rows += fmt.Sprintln(id)
		}
	}
	return rows, len(failed)
}

// TestSQLiteKeepsDatabasesOnFullDisks: every nth pwrite fails with ENOSPC. The statement then fails with
// SQLITE_FULL and its transaction is rolled back (sqlite.org/rescode.html#full, lang_transaction.html),
// if need be by who opens the database next (atomiccommit.html): what was committed is there, nothing
// else is, and the file is sound.
func TestSQLiteKeepsDatabasesOnFullDisks(t *testing.T) {
	sqlite := requires(t, "sqlite3")[0]
	for _, mode := range []string{"DELETE", "WAL"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			base := ledger(t, sqlite, filepath.Join(dir, "base"), mode)
			script := filepath.Join(dir, "script")
			write(t, script, ledgerWork())
			prog := start(t, dir, "/bin/sh", "-c", `exec "$0" -batch 2>&1`, sqlite)
			prog.Do(".print runs", "runs") // no longer the shell that has started it
			before := testprog.TakeSnapshot(t, prog.PID())
			s := attach(t, prog.PID(), kprobes.Options{})
			check, want, fails := "", "", 0
			for n := uint64(1); n <= fullDisks; n++ {
				db := filepath.Join(dir, fmt.Sprint(n))
				write(t, db, string(base))
				prog.Do(".open "+db+"\n.print opened", "opened")
				stop := failing(t, s, inject.Rule{Spec: "libc.so.6:pwrite64", Attr: every(n), Do: failsWith(unix.ENOSPC)})
				prog.Send(".read " + script)
				rows, failed := committed(t, prog)
				fails += failed
				if st := stop(); st.Injected == 0 || st.Injected != st.Calls/n {
					t.Errorf("n = %d: %d of %d writes failed", n, st.Injected, st.Calls)
				}
				check += ".open " + db + "\nPRAGMA integrity_check;\nSELECT id FROM ledger ORDER BY id;\n"
				want += "ok\n" + rows
			}
			if fails < fullDisks {
				t.Errorf("only %d statements have failed", fails)
			}
			prog.Do(".open :memory:\n.print closed", "closed")
			sameText(t, "the databases", want, output(t, check, sqlite, "-bail"))
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			before.Compare(t, prog.PID())
			prog.Send(".exit 0") // of itself it would exit with 1, for its errors
			prog.Wait()
		})
	}
}
