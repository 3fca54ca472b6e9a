from catalog import program


@program("node", needs={"node": "nodejs"}, proves=["node --version"], watches=["node"])
def node(test):
    """node: worker_threads, transferred buffers, child processes, zlib and crypto in the thread pool, http"""
    result = test.run(["node", test.scripts / "workers.js", "1" if test.quick else "6"])
    test.expect(result.stdout.endswith("done\n"), "the script did not reach its end")


@program("node-addon", needs={"node": "nodejs", "/usr/include/node/node_api.h": "libnode-dev", "gcc": "gcc"},
         watches=["node"], quick_limit_s=150, full_limit_s=300)
def node_addon(test):
    """node with a native addon: external buffers that the collector frees, the thread pool, worker threads"""
    addon = test.folder / "addon.node"
    test.run(["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-I/usr/include/node", "-o", addon, test.scripts / "addon.c"])
    told = test.run(["node", "--expose-gc", test.scripts / "addon.js", addon, "1" if test.quick else "10"]).stdout
    test.expect(told == "done\n", f"the script printed {told!r}")
