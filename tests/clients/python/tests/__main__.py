"""Runs the tests and prints a line for each, as ../../run counts them."""

from __future__ import annotations

import sys
import unittest


class Lines(unittest.TestResult):
    """A line per test, named by the first line of its docstring."""

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._say("ok", test)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        super().addFailure(test, err)  # type: ignore[arg-type]
        self._say("FAILED", test, self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: object) -> None:
        super().addError(test, err)  # type: ignore[arg-type]
        self._say("FAILED", test, self.errors[-1][1])

    def _say(self, verdict: str, test: unittest.TestCase, trace: str = "") -> None:
        # Errors of setUpClass have a placeholder instead of the test.
        print(f"{verdict} {test.shortDescription() or test}", flush=True)
        for line in trace.splitlines():
            print(f"        {line}")


if __name__ == "__main__":
    tests = unittest.defaultTestLoader.discover("tests", top_level_dir=".")
    sys.exit(not tests.run(Lines()).wasSuccessful())
