import signal

from catalog import program

KINDS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,lrange_100,mset"


@program("redis", needs={"redis-server": "redis-server", "redis-benchmark": "redis-tools"}, light=True,
         proves=["redis-server --version", "redis-cli --version"], watches=["redis-*"], quick_limit_s=120,
         full_limit_s=300)
def redis(test):
    """redis-server under redis-benchmark; BGSAVE and AOF rewrite while it works; the same data after a restart"""
    server = start(test)
    requests = "20000" if test.quick else "200000"
    bench = test.run(["redis-benchmark", "-s", socket(test), "-n", requests, "-c", "30", "-d", "700", "-r", "20000",
                      "-P", "8", "-q", "--threads", "2", "-t", KINDS])
    test.expect(bench.stdout.count("requests per second") >= 11, "redis-benchmark did not report all its tests")
    fill(test)
    for command, flag in (("BGSAVE", "rdb_last_bgsave_status"), ("BGREWRITEAOF", "aof_last_bgrewrite_status")):
        ask(test, command)
        test.run(["redis-benchmark", "-s", socket(test), "-n", "5000", "-r", "20000", "-d", "3000", "-q", "-t", "set"])
        test.wait_for(lambda: info(test, "rdb_bgsave_in_progress") == info(test, "aof_rewrite_in_progress") == "0",
                      f"{command} did not end", 60)
        test.expect(info(test, flag) == "ok", f"{command}: {flag} is {info(test, flag)}")
    digest = ask(test, "DEBUG", "DIGEST")
    test.expect(ask(test, "DEBUG", "RELOAD") == "OK", "DEBUG RELOAD failed")
    test.expect(ask(test, "DEBUG", "DIGEST") == digest, "data changed by a save and reload")
    ask(test, "SAVE")
    keys = ask(test, "DBSIZE")
    test.stop(server)
    test.run(["redis-check-rdb", "dump.rdb"])
    server = start(test)
    test.expect(ask(test, "DEBUG", "DIGEST") == digest, "data changed by a restart from the append-only file")
    test.note(f"{keys} keys, {info(test, 'used_memory_rss_human')} resident")
    ask(test, "FLUSHALL")
    test.stop(server, signal.SIGTERM)


def socket(test):
    return test.folder / "redis.socket"


def start(test):
    server = test.start(["redis-server", "--port", "0", "--unixsocket", socket(test), "--appendonly", "yes",
                         "--save", "", "--io-threads", "2", "--enable-debug-command", "yes", "--dir", test.folder,
                         "--lazyfree-lazy-user-del", "yes", "--maxclients", "500"])
    test.wait_for(lambda: ask(test, "PING") == "PONG", "redis-server does not answer", 60)
    return server


def ask(test, *command):
    """One command's answer as text."""
    return test.run(["redis-cli", "-s", socket(test), *command]).stdout.strip()


def info(test, field):
    lines = ask(test, "INFO").splitlines()
    return next(line.split(":", 1)[1] for line in lines if line.startswith(field + ":"))


def fill(test):
    """Values of all sizes and types, made by a script inside the server; the second half is then removed."""
    count = 4000 if test.quick else 30000
    script = ("for i = 1, tonumber(ARGV[1]) do local v = string.rep(tostring(i), i % 400 + 1) "
              "redis.call('SET', 'k' .. i, v) redis.call('HSET', 'h' .. i % 50, i, v) "
              "redis.call('ZADD', 'z' .. i % 20, i, v) redis.call('RPUSH', 'l' .. i % 30, v) "
              "redis.call('APPEND', 'big', v) end return redis.call('STRLEN', 'big')")
    length = int(ask(test, "EVAL", script, "0", str(count)))
    expected = sum(len(str(i)) * (i % 400 + 1) for i in range(1, count + 1))
    test.expect(length == expected, f"the value built by appends has {length} bytes, not {expected}")
    ask(test, "EVAL", "for i = tonumber(ARGV[1]) / 2, tonumber(ARGV[1]) do redis.call('UNLINK', 'k' .. i) end", "0",
        str(count))
