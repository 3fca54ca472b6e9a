from catalog import program


@program("java", needs={"java": "default-jre-headless", "javac": "default-jdk-headless"}, proves=["java -version"],
         watches=["java", "javac"], quick_limit_s=120, full_limit_s=300)
def java(test):
    """a JVM: javac, then threads, compilers, direct buffers, zip, garbage collectors"""
    test.run(["javac", "-d", test.folder, test.scripts / "Threads.java"])
    collectors = ["-XX:+UseSerialGC", "-XX:+UseG1GC"] + ([] if test.quick else ["-XX:+UseParallelGC", "-XX:+UseZGC"])
    for collector in collectors:
        result = test.run(["java", collector, "-Xmx256m", "-cp", test.folder, "Threads", "1" if test.quick else "5"])
        test.expect(result.stdout == "sum 2000000 sorted true zip true direct true\n",
                    f"{collector}: wrong output {result.stdout[:100]!r}")
    test.note(f"{len(collectors)} collectors")
