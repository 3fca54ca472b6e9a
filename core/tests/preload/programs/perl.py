from catalog import program


@program("perl", needs={"perl": "perl"}, light=True, proves=["perl --version"], watches=["perl"])
def perl(test):
    """perl: strings, hashes, regular expressions, ithreads, fork, sort, Storable, Encode"""
    result = test.same_as_plain(["perl", test.scripts / "mixed.pl", "1" if test.quick else "6"])
    test.expect(result.stdout.endswith("done\n"), "the script did not reach its end")
