// A work of SQLite.
#include "work.h"

#include <sqlite3.h>

static sqlite3 *db;

static int row(void *unused, int n, char **values, char **names)
{
	(void)unused;
	(void)names;
	for (int i = 0; i < n; i++)
		digest_bytes(values[i] ? values[i] : "", values[i] ? strlen(values[i]) + 1 : 1);
	return 0;
}

static void query(void)
{
	static const char *const script =
		"BEGIN;"
		"CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, shelf INTEGER, CHECK (id > 0));"
		"CREATE TABLE log (what);"
		"CREATE TRIGGER t AFTER DELETE ON item BEGIN INSERT INTO log VALUES (old.name || old.price); END;"
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 14)"
		"  INSERT INTO item SELECT i, printf('item-%05d', (i * 7919) % 20000), i / 3.0, i % 7 FROM n;"
		"CREATE UNIQUE INDEX by_name ON item (name);"
		"SAVEPOINT s; DELETE FROM item; ROLLBACK TO s;"
		"SELECT shelf, count(*), sum(price), avg(price), min(name), max(name) FROM item GROUP BY shelf HAVING count(*) > 1 ORDER BY 3 DESC;"
		"SELECT * FROM item WHERE name BETWEEN 'item-00100' AND 'item-09400' ORDER BY price DESC LIMIT 4 OFFSET 2;"
		"SELECT a.id, b.id FROM item a LEFT JOIN item b ON a.name = b.name AND a.id < 5 ORDER BY a.id;"
		"SELECT id, sum(price) OVER (PARTITION BY shelf ORDER BY id ROWS 2 PRECEDING) FROM item WHERE id < 8;"
		"SELECT DISTINCT shelf FROM item UNION SELECT id FROM item WHERE id IN (3, 5, 99) EXCEPT SELECT 5;"
		"UPDATE item SET price = price * 2, shelf = CASE WHEN id & 1 THEN NULL ELSE ~shelf << 2 END WHERE shelf = 3;"
		"DELETE FROM item WHERE id % 4 = 0;"
		"REPLACE INTO item VALUES (2, 'item-x', -1e300, 9223372036854775807), (15, NULL, NULL, '12abc');"
		"SELECT count(*), total(price), group_concat(substr(name, 6, 2), '') FROM item WHERE shelf < 2 OR shelf IS NULL;"
		"SELECT typeof(shelf), shelf + 1, shelf / 0, shelf % 3, -price, cast(price AS TEXT), quote(name) FROM item WHERE id > 11;"
		"SELECT * FROM log; SELECT EXISTS (SELECT 1 FROM log WHERE what LIKE '%item%7%'), 1.5 > '1', x'00ff' < 'a', NULL IS NOT 3;"
		"PRAGMA integrity_check;"
		"ROLLBACK;";
	char *error = NULL;

	CHECK(sqlite3_exec(db, script, row, NULL, &error) == SQLITE_OK);
	if (error)
		dprintf(2, "sqlite: %s\n", error);
	sqlite3_free(error);
}

int main(void)
{
	static const struct work works[] = {{"query", query, NULL}, {NULL, NULL, NULL}};

	CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK);
	return serve(works);
}
