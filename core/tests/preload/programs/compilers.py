from catalog import program

FUNCTIONS = {True: 120, False: 1200}
INSTANCES = {True: 3, False: 24}


def large_c(functions):
    """A C program of many functions with loops, switches and tables; its output depends on all of them."""
    parts = ["#include <stdio.h>\n#include <string.h>\n"]
    for n in range(functions):
        cases = "\n".join(f"    case {c}: x = x * {2 * c + 3}u + table{n}[(x >> {c % 13}) % 16]; break;"
                          for c in range(12))
        table = ", ".join(f"{(n * 7919 + i * 104729) % 65521}u" for i in range(16))
        parts.append(f"""
static const unsigned table{n}[16] = {{ {table} }};
__attribute__((noinline)) unsigned f{n}(unsigned x, const char *text) {{
  struct {{ unsigned a, b; char name[24]; }} s = {{ x, {n}, "{n}" }};
  for (unsigned i = 0; i < x % 19 + 1; i++) {{
    switch ((x + i) % 12) {{
{cases}
    }}
    s.a ^= x << (i % 7);
    s.b += (unsigned)strlen(text) + (unsigned)s.name[i % 24];
  }}
  return s.a + s.b + x;
}}""")
    calls = "\n".join(f"  sum = sum * 31u + f{n}(sum ^ {n}u, argv[0] ? \"x{n}\" : \"\");" for n in range(functions))
    parts.append(f"int main(int argc, char **argv) {{\n  unsigned sum = (unsigned)argc;\n{calls}\n"
                 "  printf(\"%u\\n\", sum);\n  return 0;\n}\n")
    return "\n".join(parts)


def large_cpp(instances):
    """A C++ program that makes the compiler instantiate: containers of many types, recursion, lambdas, regex."""
    parts = ["#include <algorithm>\n#include <functional>\n#include <iostream>\n#include <map>\n#include <regex>\n"
             "#include <string>\n#include <tuple>\n#include <unordered_map>\n#include <variant>\n#include <vector>\n"
             "template <int N> struct fib { static constexpr long value = fib<N - 1>::value + fib<N - 2>::value; };\n"
             "template <> struct fib<0> { static constexpr long value = 0; };\n"
             "template <> struct fib<1> { static constexpr long value = 1; };\n"
             "template <int N> struct tag { int number = N; bool operator<(const tag &o) const "
             "{ return number < o.number; } };\n"]
    for n in range(instances):
        parts.append(f"""
long use{n}() {{
  std::map<std::string, std::vector<std::tuple<tag<{n}>, int, std::string>>> all;
  std::unordered_map<int, std::function<long(long)>> calls;
  for (int i = 0; i < 40; i++) {{
    all["k" + std::to_string(i % {n % 9 + 2})].emplace_back(tag<{n}>{{}}, i, std::string(i, 'x'));
    calls[i] = [i, s = std::string(i + {n}, 'y')](long x) {{ return x * {n + 2} + i + (long)s.size(); }};
  }}
  std::variant<int, std::string, std::vector<tag<{n}>>> v = std::vector<tag<{n}>>({n % 5 + 1});
  long sum = fib<{n % 60 + 20}>::value + std::visit([](auto &x) {{ return (long)sizeof x; }}, v);
  for (auto &[name, items] : all) {{
    std::sort(items.begin(), items.end(), [](auto &a, auto &b) {{ return std::get<2>(a) > std::get<2>(b); }});
    for (auto &item : items) sum = calls[std::get<1>(item)](sum) % 1000003;
  }}
  return sum + std::regex_match("a{n}b", std::regex("a[0-9]+b"));
}}""")
    calls = " + ".join(f"use{n}()" for n in range(instances))
    parts.append(f"int main() {{ std::cout << {calls} << std::endl; }}\n")
    return "".join(parts)


def compile_and_compare(test, compiler, source, flags):
    """Compiles with and without the library: the objects must be the same byte by byte. Then links and runs."""
    for output, preload in (("ours.o", True), ("plain.o", False)):
        test.run([compiler, *flags, "-c", source, "-o", output], preload=preload)
    test.run(["cmp", "ours.o", "plain.o"], preload=False)
    test.run([compiler, *flags, "ours.o", "-o", "program"])
    test.same_as_plain([test.folder / "program"])


def check_compiler(test, c_compiler, cpp_compiler):
    (test.folder / "large.c").write_text(large_c(FUNCTIONS[test.quick]))
    (test.folder / "large.cc").write_text(large_cpp(INSTANCES[test.quick]))
    compile_and_compare(test, c_compiler, "large.c", ["-O2"])
    compile_and_compare(test, cpp_compiler, "large.cc", ["-std=c++17", "-O1", "-g"])
    if not test.quick:
        compile_and_compare(test, c_compiler, "large.c", ["-O3", "-g", "-flto", "-frandom-seed=snug"])
    test.note(f"{FUNCTIONS[test.quick]} functions of C, {INSTANCES[test.quick]} template families of C++")


@program("gcc", needs={"gcc": "gcc", "g++": "g++"}, light=True, proves=["gcc --version"], watches=["cc1", "cc1plus"],
         quick_limit_s=150, full_limit_s=600)
def gcc(test):
    """gcc and g++ on large generated files: objects as without the library, programs run"""
    check_compiler(test, "gcc", "g++")


@program("clang", needs={"/usr/bin/clang": "clang", "/usr/bin/clang++": "clang"}, light=True,
         proves=["clang --version"], watches=["clang"], quick_limit_s=150, full_limit_s=600)
def clang(test):
    """clang and clang++ on the same files"""
    check_compiler(test, "clang", "clang++")


MAKEFILE = """
objects = $(patsubst %.cc,%.o,$(wildcard part*.cc))
program: main.o libparts.a
\tg++ -o $@ main.o -L. -lparts
libparts.a: $(filter-out main.o,$(objects))
\tar rcs $@ $(sort $^)
%.o: %.cc
\tg++ -std=c++17 -O1 -g -pipe -c -o $@ $<
"""


@program("make", needs={"make": "make", "g++": "g++", "ar": "binutils"}, proves=["make --version"],
         watches=["make", "cc1plus", "*as", "*ar", "*ld*"], quick_limit_s=300, full_limit_s=2400)
def make(test):
    """make -j building a large C++ program of many files: the compilers, the assembler, the linker; built again alike"""
    files, families = (4, 1) if test.quick else (150, 6)
    for number in range(files):
        text = large_cpp(families).replace("long use", f"long part{number}_use")
        text = text[:text.rindex("int main()")] + f"long part{number}() {{ return {sum_of(number, families)}; }}\n"
        (test.folder / f"part{number}.cc").write_text(text)
    declared = "".join(f"long part{number}();\n" for number in range(files))
    calls = " ^ ".join(f"part{number}() * {number + 1}" for number in range(files))
    (test.folder / "main.cc").write_text(f"#include <iostream>\n{declared}int main() {{ std::cout << ({calls}) << std::endl; }}\n")
    (test.folder / "Makefile").write_text(MAKEFILE)
    test.run(["make", "-s", "-j4", "-O", "program"])
    test.same_as_plain([test.folder / "program"])
    ours = test.run(["sha256sum", "main.o", *(f"part{number}.o" for number in range(files))], preload=False).stdout
    test.run(["sh", "-c", "rm *.o *.a program && touch part*.cc"], preload=False)
    test.run(["make", "-s", "-j4", "program"], preload=False)
    plain = test.run(["sha256sum", "main.o", *(f"part{number}.o" for number in range(files))], preload=False).stdout
    test.expect(ours == plain, "make built other objects under the library")
    told = test.run(["make", "-s", "-q", "program"], statuses=(0,))
    test.expect(not told.stdout, "make wants to build again what is new")
    test.note(f"{files} files")


def sum_of(number, families):
    return " + ".join(f"part{number}_use{family}()" for family in range(families))
