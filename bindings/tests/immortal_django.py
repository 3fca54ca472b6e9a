"""The same for Django's own runner of tests, as its settings: `tests/runtests.py --settings=immortal_django`."""

import unittest

import immortal_plugin
from django.test.runner import DiscoverRunner

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3"}, "other": {"ENGINE": "django.db.backends.sqlite3"}}
SECRET_KEY = "of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "immortal_django.Runner"


class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        immortal_plugin.results.setdefault(test.id(), "passed")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        immortal_plugin.results[test.id()] = "failed"

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            immortal_plugin.results[test.id()] = "failed"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        immortal_plugin.results[test.id()] = "skipped"


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result

    def run_suite(self, suite, **options):
        immortal_plugin.begin()
        try:
            return super().run_suite(suite, **options)
        finally:
            immortal_plugin.end()
