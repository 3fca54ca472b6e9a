import os
import re
import signal

from catalog import program


@program("erlang", needs={"erl": "erlang-base", "erlc": "erlang-base"}, watches=["beam.smp"], quick_limit_s=90,
         full_limit_s=200)
def erlang(test):
    """Erlang: processes in a ring and in crowds, messages, tables, binaries, code loading; with malloc for all it has"""
    test.run(["erlc", "-o", test.folder, test.scripts / "messages.erl"])
    scale = "1" if test.quick else "8"
    # Erlang's own allocators take memory by mmap; the second time each of them is malloc.
    for allocator in ([], ["+Mea", "min"]):
        result = test.same_as_plain(["erl", *allocator, "-noshell", "-noinput", "-pa", test.folder, "-run", "messages", "main",
                                     scale], limit_s=100)
        test.expect(result.stdout.endswith("done\n"), "the module did not reach its end")


@program("rabbitmq", needs={"/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server", "erl": "erlang-base",
                            "/usr/bin/python3": "python3", "/usr/share/doc/python3-pika": "python3-pika"},
         watches=["beam.smp"], quick_limit_s=150, full_limit_s=300)
def rabbitmq(test):
    """RabbitMQ: publishers and consumers side by side, confirms, a durable queue over a restart"""
    for name in ("log", "mnesia", "home"):
        (test.folder / name).mkdir()
    ports = [test.free_port() for _ in range(3)]
    server = start(test, ports)
    count = 2000 if test.quick else 50_000
    clients = ["/usr/bin/python3", test.scripts / "queues.py", ports[0], count]
    told = test.run([*clients, "fill"], limit_s=200).stdout
    test.expect(told == f"{count} sent and received\n", f"the clients say {told!r}")
    stop(test, server)
    server = start(test, ports)
    told = test.run([*clients, "drain"], limit_s=200).stdout
    test.expect(told == f"{count} kept over the restart\n", f"the clients say {told!r}")
    stop(test, server)
    test.note(f"{2 * count} messages")


def environment(test, ports):
    return {"RABBITMQ_NODENAME": f"snug{os.getpid()}@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(ports[0]), "RABBITMQ_DIST_PORT": str(ports[1]), "ERL_EPMD_PORT": str(ports[2]),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_LOG_BASE": str(test.folder / "log"), "HOSTNAME": "localhost",
            "RABBITMQ_MNESIA_BASE": str(test.folder / "mnesia"), "HOME": str(test.folder / "home"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(test.folder / "plugins"), "RABBITMQ_PID_FILE": str(test.folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(test.folder / "rabbitmq"), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+MMscs 64"}


def start(test, ports):
    (test.folder / "plugins").write_text("[].\n")
    (test.folder / "rabbitmq.conf").write_text("vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n")
    server = test.start(["/usr/lib/rabbitmq/bin/rabbitmq-server"], env=environment(test, ports), name="rabbitmq-server")
    test.wait_for(lambda: test.accepts(ports[0]), "RabbitMQ does not listen", 90)
    test.expect_serves(test.pids("beam.smp"), "RabbitMQ's beam.smp")
    return server


def stop(test, server):
    for pid in test.pids("beam.smp"):
        os.kill(pid, signal.SIGTERM)
    test.wait_for(lambda: not test.pids("beam.smp"), "RabbitMQ does not end", 60)
    server.wait(30)
    text = (test.logs / "rabbitmq-server.log").read_text(errors="replace")
    found = re.search(r".*(Crash dump is being written|BOOT FAILED).*", text)
    test.expect(not found, f"rabbitmq-server.log: {found and found.group(0)}")
