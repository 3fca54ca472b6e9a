import pathlib
import re

from catalog import program

BINARIES = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), default=pathlib.Path("/usr/lib/postgresql/15/bin"),
               key=lambda path: path.parent.name)
USER = "postgres"
PARALLEL = "debug_parallel_query" if int(BINARIES.parent.name) >= 16 else "force_parallel_mode"


@program("postgresql", needs={str(BINARIES / "initdb"): "postgresql", str(BINARIES / "pgbench"): "postgresql"},
         proves=[f"{BINARIES}/postgres --version", f"{BINARIES}/psql --version"],
         watches=["postgres", "initdb", "pgbench"], quick_limit_s=150, full_limit_s=400)
def postgresql(test):
    """PostgreSQL: initdb, pgbench, parallel queries, dump and restore, and its own consistency checks"""
    data = test.folder / "data"
    run(test, "initdb", "-D", data, "--data-checksums", "-A", "trust", "--no-sync", "-U", "postgres")
    server = test.start([BINARIES / "postgres", "-D", data, "-k", test.folder, "-c", "listen_addresses=",
                         "-c", "fsync=off", "-c", "max_parallel_workers_per_gather=2", "-c", f"{PARALLEL}=on",
                         "-c", "work_mem=8MB", "-c", "min_parallel_table_scan_size=0", "-c", "parallel_setup_cost=0"],
                        user=USER)
    test.wait_for(lambda: query(test, "select 1") == "1", "the server does not answer", 60)
    check_benchmark(test)
    check_queries(test)
    check_dump(test)
    test.stop(server)
    run(test, "pg_checksums", "--check", "-D", data)
    text = (test.logs / "postgres.log").read_text(errors="replace")
    found = re.search(r".*(PANIC|terminated by signal|server process .* exited with).*", text)
    test.expect(not found, f"server log: {found and found.group(0)}")


def run(test, command, *arguments):
    return test.run([BINARIES / command, *arguments], user=USER)


def psql(test, database, sql):
    return run(test, "psql", "-h", test.folder, "-U", "postgres", "-d", database, "-XAtq", "-v", "ON_ERROR_STOP=1",
               "-c", sql).stdout.strip()


def query(test, sql):
    return psql(test, "postgres", sql)


def check_benchmark(test):
    """pgbench's own invariant: every transfer is in the accounts, the tellers, the branches and the history."""
    connection = ["-h", test.folder, "-U", "postgres"]
    run(test, "pgbench", *connection, "-i", "-q", "-s", "2" if test.quick else "20", "postgres")
    bench = run(test, "pgbench", *connection, "-c", "8", "-j", "2", "-T", "5" if test.quick else "30", "postgres")
    done = int(re.search(r"transactions actually processed: (\d+)", bench.stdout).group(1))
    test.expect(re.search(r"number of failed transactions: 0 ", bench.stdout), "pgbench reports failed transactions")
    sums = query(test, "select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches),"
                       " (select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history)")
    sums = sums.split("|")
    test.expect(len(set(sums)) == 1, f"balances of accounts, branches, tellers and history differ: {', '.join(sums)}")
    logged = int(query(test, "select count(*) from pgbench_history"))
    test.expect(logged == done, f"pgbench did {done} transactions, the history has {logged}")
    connecting = run(test, "pgbench", *connection, "-C", "-S", "-c", "4", "-t", "30" if test.quick else "200",
                     "postgres")
    test.expect("failed transactions: 0 " in connecting.stdout, "pgbench with new connections reports failures")
    test.note(f"{done} transactions")


def check_queries(test):
    rows = 50_000 if test.quick else 500_000
    query(test, f"create table item as select i, md5(i::text) as hash, repeat(chr(65 + i % 26), i % 900) as body, "
                f"jsonb_build_object('i', i, 'tags', array[i % 7, i % 11]) as doc from generate_series(1, {rows}) i")
    query(test, "create index on item(hash); create index on item using gin(doc); analyze item")
    total = rows * (rows + 1) // 2
    test.expect(query(test, "select sum(i) from item") == str(total), "a parallel sum is wrong")
    test.expect(query(test, "select count(*), sum(n) from (select hash, count(*) n, max(body) from item group by 1) x")
                == f"{rows}|{rows}", "a hash aggregate is wrong")
    test.expect(query(test, "select bool_and(hash >= before) from (select hash, lag(hash, 1, '') over (order by hash) "
                            "before from item) x") == "t", "a sort is wrong")
    test.expect(query(test, "select count(*) from item x join item y on x.hash = y.hash and y.i = x.i") == str(rows),
                "a join is wrong")
    hits = sum(1 for i in range(1, rows + 1) if i % 7 == 3 and i % 11 == 5)
    test.expect(query(test, "select count(*) from item where doc @> '{\"tags\": [3]}' and doc->'tags' = '[3, 5]'")
                == str(hits), "a search in JSON is wrong")
    length = sum(i % 900 for i in range(1, rows + 1))
    test.expect(query(test, "select length(string_agg(body, '' order by hash)) from item") == str(length),
                "a string built from all rows has the wrong length")
    query(test, "do $$ begin for i in 1..300 loop begin execute 'select ' || i || '/(' || i || '-150)'; "
                "exception when division_by_zero then null; end; end loop; end $$")
    query(test, "delete from item where i % 3 = 0")
    query(test, "vacuum full item")
    test.expect(query(test, "select count(*) from item") == str(rows - rows // 3), "rows are missing after vacuum full")


def check_dump(test):
    digest = "select md5(string_agg(hash || body || doc::text, ',' order by i)) from item"
    connection = ["-h", test.folder, "-U", "postgres"]
    dump = test.folder / "dump"
    run(test, "pg_dump", *connection, "-Fd", "-j2", "-f", dump, "postgres")
    query(test, "create database copy")
    run(test, "pg_restore", *connection, "-j2", "-d", "copy", dump)
    test.expect(psql(test, "copy", digest) == query(test, digest), "dump and restore changed the data")
    query(test, "create extension amcheck")
    query(test, "select bt_index_check(c.oid, true) from pg_class c join pg_am a on a.oid = c.relam "
                "where a.amname = 'btree' and c.relkind = 'i' and c.relpersistence = 'p'")
