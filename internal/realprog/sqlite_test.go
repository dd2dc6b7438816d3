package realprog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sqliteScript ends as it begins: without tables.
const sqliteScript = `.output %OUT%
PRAGMA cache_size = 20;
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, shelf INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
  INSERT INTO item SELECT i, printf('item-%05d', (i * 7919) % 20000), i / 3.0, i % 17 FROM n;
COMMIT;
CREATE INDEX by_name ON item (name);
SELECT shelf, count(*), sum(price), avg(price), min(name), max(name) FROM item GROUP BY shelf ORDER BY shelf;
SELECT * FROM item WHERE name BETWEEN 'item-00100' AND 'item-00400' ORDER BY price DESC;
SELECT a.id, b.id FROM item a JOIN item b ON a.name = b.name AND a.id < 300 ORDER BY a.id;
UPDATE item SET price = price * 2 WHERE shelf = 3;
DELETE FROM item WHERE id % 2 = 0;
SELECT count(*), sum(price), group_concat(substr(name, 6, 2), '') FROM item WHERE shelf < 2;
SELECT upper(hex(substr(name, 1, 3))), length(name) FROM item LIMIT 5;
PRAGMA integrity_check;
DROP TABLE item;
VACUUM;
.output
.print done
`

// TestSQLite: the shell runs a script, probed in the library and in libc.
func TestSQLite(t *testing.T) {
	tools := requires(t, "sqlite3")
	dir := t.TempDir()
	out, script := filepath.Join(dir, "out"), filepath.Join(dir, "script")
	write(t, script, strings.ReplaceAll(sqliteScript, "%OUT%", out))
	prog := start(t, dir, tools[0], "-batch", filepath.Join(dir, "db"))
	work := func(t testing.TB) string {
		t.Helper()
		prog.Do(".read "+script, "done")
		prog.Do(".print closed", "closed") // the script, which it has open as long as it says "done"
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	campaign{
		pid: prog.PID(),
		specs: []string{"libsqlite3.so.0:sqlite3_step", "sqlite3_column_text", "sqlite3_prepare_v2", "sqlite3_mprintf",
			"libc.so.6:pread64", "libc.so.6:pwrite64", "libc.so.6:malloc"},
		work: work,
		same: []string{"libsqlite3.so.0:sqlite3_step", "sqlite3_column_text", "sqlite3_prepare_v2", "sqlite3_mprintf",
			"libc.so.6:pread64", "libc.so.6:pwrite64"},
	}.run(t)
	prog.Quit()
}
