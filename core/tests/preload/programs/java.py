import pathlib
import shutil

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


@program("java-native", needs={"java": "default-jre-headless", "javac": "default-jdk-headless", "gcc": "gcc"},
         watches=["java"], quick_limit_s=150, full_limit_s=400)
def java_native(test):
    """Java with native code (JNI): malloc and free on different threads, direct buffers, threads that attach and call"""
    home = pathlib.Path(shutil.which("javac")).resolve().parents[1]
    includes = [f"-I{home}/include", f"-I{home}/include/linux"]
    library = test.folder / "libnative.so"
    test.run(["gcc", "-O1", "-Wall", "-shared", "-fPIC", *includes, "-o", library, test.scripts / "native.c", "-pthread"])
    test.run(["javac", "-d", test.folder, test.scripts / "Native.java"])
    for collector in ["-XX:+UseG1GC"] + ([] if test.quick else ["-XX:+UseSerialGC", "-XX:+UseZGC"]):
        options = [collector, "-Xmx256m", "-Xcheck:jni", "-cp", test.folder]
        told = test.run(["java", *options, "Native", library, "1" if test.quick else "10"]).stdout
        test.expect(told.endswith("blocks true buffers true text 100000 calls 4\n"), f"{collector}: printed {told[-200:]!r}")
