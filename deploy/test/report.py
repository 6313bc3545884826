"""One line for each check, and `N passed, N failed` at the end, as tests/smoke has it."""

import os
import sys


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, problems):
        """Passes if there are no problems: a list of texts, or one text."""
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
        """Runs a story's STEPS, whose docstrings are what they check: each yields its problems, or raises one of `failures`.
        Most steps need the earlier ones, so the first failure ends the story."""
        for step in story.STEPS:
            try:
                problems = list(step(story) or [])
            except failures as failure:
                problems = [str(failure)]
            if not self.check(step.__doc__, problems):
                return

    def not_checked(self, why):
        """Something could not be looked at. A failure where nothing may be left out."""
        print(f"not checked: {why}")
        if os.environ.get("TROUPE_CI_STRICT") == "1":
            self.failed += 1

    def summary(self):
        """Prints the last line; the status for sys.exit. A run without a single check has not passed."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 0 if self.failed == 0 and self.passed > 0 else 1
