"""Prints one line for each check, and `N passed, N failed` at the end, like tests/smoke."""

import os
import sys


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, problems):
        """Records a check, which passes if there are no problems. `problems` is a list of texts, or one text."""
        problems = [problem for problem in ([problems] if isinstance(problems, str) else problems) if problem]
        if problems:
            self.failed += 1
            print(f"FAILED  {name}")
            for line in "\n".join(problems).splitlines():
                print(f"        {line}")
        else:
            self.passed += 1
            print(f"ok      {name}")
        sys.stdout.flush()
        return not problems

    def tell(self, story, *failures):
        """Runs the STEPS of a story. Each step's docstring is the name of its check. A step yields its problems, or
        raises one of `failures`. Most steps need the earlier ones, so the first failure ends the story."""
        for step in story.STEPS:
            try:
                problems = list(step(story) or [])
            except failures as failure:
                problems = [str(failure)]
            if not self.check(step.__doc__, problems):
                return

    def not_checked(self, why):
        """Reports a check that could not run. This is a failure if every check must run."""
        print(f"not checked: {why}")
        if os.environ.get("TROUPE_CI_STRICT") == "1":
            self.failed += 1

    def summary(self):
        """Prints the last line. Returns the status for sys.exit. A run without a check counts as failed."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 0 if self.failed == 0 and self.passed > 0 else 1
