# release.mk: what is released, and how it is tested. Included by the top-level Makefile.
#
#   make dist           everything that is released, for x86-64 and aarch64, in build/dist
#   make test-packages  gem, wheel, crate, buildpack, manifests, made of what `make` built: installed, and programs run under them
#   make test-semver    the crate's public items against those of the last release
#   make test-suites    suites of packages for Python with everything immortal, as before a fork, against without; hours
#   make publish-dry-run   uploads that to registries on the loopback, and installs it from there: all of a release but credentials
#   make test-dist      all of that, builds it twice, and installs each package on a clean system; most of an hour
#   make dist DIST_FLAGS='--architectures x86_64 --formats linux'

.PHONY: dist
dist: build/deps-dist build/dist-tools/installed
	release/dist $(DIST_FLAGS)

build/dist-tools/installed: release/requirements.txt | build/deps-check
	$(python_tools)

# Needs root and a network: systems are made by debootstrap, once, in build/roots.
.PHONY: test-dist
test-dist: dist
	tools/run_unittests.py release/install_tests

# PyPI, RubyGems, crates.io, a registry of images, a repository for apt. Needs root and a network, as above.
.PHONY: publish-dry-run
publish-dry-run: dist
	tools/run_unittests.py release/install_tests release.install_tests.test_publication release.install_tests.test_linux.Deb

# The public items of the crate against those of the last tag, by cargo-semver-checks, which it compiles in minutes.
RELEASED = $(shell git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null)
LAY_OUT_CRATE = /usr/bin/python3 -B -c 'import pathlib, sys; from release.crates import lay_out; lay_out(pathlib.Path(sys.argv[1]).resolve())'
.PHONY: test-semver
test-semver:
ifeq ($(RELEASED),)
	@echo "SKIPPED semver: there is no release to compare with"; echo "semver: 0 passed, 0 failed, 1 skipped"
else
	rm -rf build/released build/semver
	mkdir -p build/released build/semver
	git archive $(RELEASED) | tar -C build/released -x
	cd build/released && $(LAY_OUT_CRATE) ../semver/released
	$(LAY_OUT_CRATE) build/semver/now
	$(CARGO) install --quiet --locked --root build/semver-tools cargo-semver-checks
	build/semver-tools/bin/cargo-semver-checks semver-checks --manifest-path build/semver/now/Cargo.toml --baseline-root build/semver/released
endif

# The suites of numpy, SQLAlchemy, Django, pydantic and Celery, and CPython's own, with everything immortal and without. Hours, and
# a network for pip; SUITES="celery django" runs only these, SUITES_PYTHON=python3.14 with another Python.
SUITES_PYTHON = python3.13
.PHONY: test-suites
test-suites:
	bindings/tests/run_suites_of_packages.py --python $(SUITES_PYTHON) $(SUITES)
	$(if $(SUITES),,SNUG_TEST_PYTHONS=$$(command -v $(SUITES_PYTHON)) SNUG_TEST_MODULES=all tools/run_unittests.py bindings/tests bindings.tests.test_wheel_immortal.CPythonsOwnTests)

.PHONY: test-packages
test-packages: all build/dist-tools/installed
	tools/run_unittests.py release/tests
	tools/run_unittests.py bindings/tests
	tools/run_unittests.py deploy/tests
	build/dist-tools/bin/python tools/run_unittests.py deploy/kubernetes/tests
