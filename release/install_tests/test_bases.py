"""The images of Ruby and Python with snug in them, built by an engine of a clean Debian, and applications built on them."""

import os
import unittest

from release.install_tests.containers import QUIET, UNDER_SNUG, WITHOUT_UNIFIED, Containers, engine, options
from release.install_tests.roots import check
from release.project import ROOT, VERSION, run

PYTHON_UNDER_SNUG = "import threading; assert '/libsnug.so' in open('/proc/self/maps').read(); [threading.Thread(target=bytes, args=(9000,)).start() for _ in range(9)]"
APPLICATION = """FROM snug-{language}:{version}
RUN {build}
COPY app /app
CMD ["{interpreter}", "/app"]
"""
# What a build of an application does in its image: it runs under snug, too.
LANGUAGES = {
    "ruby": ("ruby", UNDER_SNUG, "bundle --version && gem environment >/dev/null"),
    "python": ("python3", PYTHON_UNDER_SNUG, "python3 -m venv /venv && /venv/bin/python -c 'import json'"),
}


class Bases(Containers):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        environment = {**os.environ, "PODMAN_OPTIONS": " ".join(options())}
        check([*WITHOUT_UNIFIED, ROOT / "release/base-images", "--from", "localhost/clean-debian"], env=environment)

    def test_what_is_started_in_them_runs_under_snug(self):
        for language, (interpreter, program, _) in LANGUAGES.items():
            with self.subTest(language):
                option = "-e" if language == "ruby" else "-c"
                engine("run", *QUIET, f"snug-{language}:{VERSION}", interpreter, option, program)
                engine("run", *QUIET, "--user", "1000", f"snug-{language}:{VERSION}", interpreter, option, program)
                self.assertEqual(engine("run", *QUIET, f"snug-{language}:{VERSION}", "snug", "--version"), f"snug {VERSION}\n")

    def test_an_application_is_built_on_them(self):
        for language, (interpreter, program, build) in LANGUAGES.items():
            with self.subTest(language):
                folder = self.folder(f"application-{language}")
                (folder / "Dockerfile").write_text(APPLICATION.format(language=language, version=VERSION, build=build, interpreter=interpreter))
                (folder / "app").write_text(program)
                engine("build", "--isolation", "chroot", "--pull=never", "--tag", "application", folder)
                engine("run", *QUIET, "application")

    def test_a_language_that_there_is_not_is_named(self):
        with self.assertRaisesRegex(SystemExit, "there is no perl; there are: python, ruby"):
            run("release/base-images", "perl")


if __name__ == "__main__":
    unittest.main()
