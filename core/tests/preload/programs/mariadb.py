import os
import re
import signal

from catalog import program

SYSBENCH = "/usr/share/sysbench/oltp_read_write.lua"


@program("mariadb", needs={"/usr/sbin/mariadbd": "mariadb-server", "mariadb": "mariadb-client", SYSBENCH: "sysbench"},
         proves=["/usr/sbin/mariadbd --version", "mariadb --version"], watches=["mariadbd"], quick_limit_s=150,
         full_limit_s=500)
def mariadb(test):
    """MariaDB: sysbench with many connections, a battery of SQL, dump and restore, a crash and what it recovers"""
    user = "mysql" if os.geteuid() == 0 else None
    (test.folder / "data").mkdir()
    (test.folder / "data").chmod(0o777)
    test.run(["mariadb-install-db", "--no-defaults", f"--datadir={test.folder}/data", "--auth-root-authentication-method=normal",
              "--skip-test-db"], user=user, limit_s=100)
    server = start(test, user)
    check_sql(test)
    check_load(test)
    before = sums(test)
    dump = test.run([*client(test, "mariadb-dump"), "--single-transaction", "sbtest"]).stdout
    query(test, "create database restored")
    test.run([*client(test), "restored"], stdin=dump)
    test.expect(sums(test, "restored") == before, "the restored dump has other sums than what was dumped")
    server.send_signal(signal.SIGKILL)  # it has to recover from its log, which allocates much
    server.wait(30)
    server = start(test, user)
    test.expect(sums(test) == before, "the sums differ after a crash and recovery")
    tables = test.run([*client(test, "mariadb-check"), "--extended", "--databases", "sbtest", "restored"]).stdout
    test.expect(tables.count(" OK\n") == 8, f"mariadb-check says: {tables[:200]}")
    test.stop(server, signal.SIGTERM, limit_s=60)
    found = re.search(r".*\[ERROR\].*|.*got signal \d+.*", (test.logs / "mariadbd.log").read_text(errors="replace"))
    test.expect(not found, f"mariadbd.log: {found and found.group(0)[:150]}")


def client(test, name="mariadb"):
    return [name, "--no-defaults", "-u", "root", f"--socket={test.folder}/socket"]


def query(test, sql, database="mysql"):
    return test.run([*client(test), "-BN", database, "-e", sql]).stdout.strip()


def start(test, user):
    test.folder.chmod(0o777)
    server = test.start(["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={test.folder}/data",
                         f"--socket={test.folder}/socket", f"--pid-file={test.folder}/pid", "--skip-networking",
                         "--innodb-buffer-pool-size=64M", "--max-connections=400", "--performance-schema=ON",
                         f"--tmpdir={test.folder}", "--thread-cache-size=10"], user=user, name="mariadbd")
    test.wait_for(lambda: query(test, "select 1") == "1", "mariadbd does not answer", 60)
    test.expect_serves([server.pid], "mariadbd")
    return server


def check_sql(test):
    """Answers that can be said beforehand, of queries that sort, group, join, recurse and build long strings."""
    rows = 30_000 if test.quick else 300_000
    query(test, "create database battery; use battery; create table t (id int primary key, k int, s text, j json, key (k));"
                f"insert into t select seq, seq % 97, repeat(char(97 + seq % 26), seq % 300), "
                f"json_object('n', seq, 'l', json_array(seq % 7, 'x')) from mysql_seq.seq_1_to_{rows}"
          .replace("mysql_seq.", ""))
    expected = {
        "select count(*), sum(id), sum(length(s)) from t":
            f"{rows}\t{rows * (rows + 1) // 2}\t{sum(n % 300 for n in range(1, rows + 1))}",
        "select count(*), sum(c) from (select k, count(*) c, group_concat(id order by id desc) from t group by k) g":
            f"97\t{rows}",
        "select count(*) from t a join t b on a.k = b.id":
            str(sum(n % 97 != 0 for n in range(1, rows + 1))),
        "select sum(json_extract(j, '$.n')) from t": str(rows * (rows + 1) // 2),
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 900) select sum(n) from r": "405450",
        "select length(group_concat(s separator '')) from (select repeat('ab', 200000) s union all select 'c') u": "400001",
        "select sum(r) from (select row_number() over (partition by k order by s, id) r from t) w":
            str(sum(c * (c + 1) // 2 for c in (len(range(k or 97, rows + 1, 97)) for k in range(97)))),
    }
    for sql, answer in expected.items():
        got = query(test, f"set group_concat_max_len = 10000000; set max_recursive_iterations = 5000; {sql}", "battery")
        test.expect(got.split(".")[0] == answer, f"`{sql[:60]}` answers {got[:60]!r}, not {answer!r}")


def check_load(test):
    query(test, "create database sbtest")
    threads, seconds = (64, 6) if test.quick else (200, 60)
    options = [SYSBENCH, "--db-driver=mysql", f"--mysql-socket={test.folder}/socket", "--mysql-user=root", "--tables=4",
               "--table-size=2000" if test.quick else "--table-size=20000", f"--threads={threads}", f"--time={seconds}",
               "--db-ps-mode=auto"]
    # sysbench is LuaJIT and libmariadb; it is not what is tested, but runs under the library, too.
    test.run(["sysbench", *options, "--threads=4", "prepare"])
    told = test.run(["sysbench", *options, "run"], limit_s=seconds + 60).stdout
    transactions = int(re.search(r"transactions:\s+(\d+)", told).group(1))
    test.expect(transactions > 20, f"sysbench did {transactions} transactions")
    failed = re.search(r"ignored errors:\s+(\d+).*\n\s+reconnects:\s+(\d+)", told)
    test.expect(failed.group(2) == "0", f"sysbench lost its connection {failed.group(2)} times")
    test.note(f"{transactions} transactions on {threads} connections")


def sums(test, database="sbtest"):
    return query(test, "; ".join(f"select count(*), sum(id), sum(k), md5(group_concat(md5(concat(c, pad)) order by id)) "
                                 f"from sbtest{number}" for number in range(1, 5)), database)
