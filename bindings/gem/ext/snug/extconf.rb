# frozen_string_literal: true

# Compiles libsnug.so at the installation of the source gem: one call of the C compiler, nothing of Ruby's own.
compiler = ENV.fetch("CC", "cc")
abort "snug: a C compiler is needed; #{compiler} was not found" unless system(compiler, "--version", out: File::NULL, err: File::NULL)

flags = "-std=gnu11 -O2 -fPIC -fvisibility=hidden -fno-stack-protector -fno-builtin-malloc -U_FORTIFY_SOURCE " \
        "-ffunction-sections -fdata-sections"
links = "-shared -nostdlib -Wl,-soname,libsnug.so.0 -Wl,-z,now,-z,nodelete,-z,relro -Wl,--strip-all,--gc-sections"
File.write("Makefile", <<~MAKEFILE)
  libsnug.so:
  \t#{compiler} #{flags} #{links} #{__dir__}/core/src/snug.c #{__dir__}/core/shared/*.c -lgcc -o $@
  install: libsnug.so
  \tinstall -m 644 libsnug.so #{File.expand_path("../../lib/snug", __dir__)}/
  clean:
  \trm -f libsnug.so
  .PHONY: install clean
MAKEFILE
