from catalog import program


@program("node", needs={"node": "nodejs"}, proves=["node --version"], watches=["node"])
def node(test):
    """node: worker_threads, transferred buffers, child processes, zlib and crypto in the thread pool, http"""
    result = test.run(["node", test.scripts / "workers.js", "1" if test.quick else "6"])
    test.expect(result.stdout.endswith("done\n"), "the script did not reach its end")
