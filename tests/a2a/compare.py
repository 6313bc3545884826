#!/usr/bin/env python3
"""Compares the results of the conformance kit with the named exceptions: compare.py JUNIT.XML EXCEPTIONS.TOML"""

import fnmatch
import sys
import tomllib
import xml.etree.ElementTree as ElementTree

from pathlib import Path


def main() -> int:
    report, exceptions = sys.argv[1:]
    named = [(pattern, entry) for entry in tomllib.loads(Path(exceptions).read_text())["exception"] for pattern in entry["tests"]]
    passed, failed = set(), set()
    skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        module, _, name = case.get("classname", "").rpartition(".")
        test = f"{module}::{name}::{case.get('name')}" if name[:1].isupper() else f"{module}.{name}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(test)
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed.add(test)
    bad = 0
    unnamed = {test for test in failed if not any(fnmatch.fnmatchcase(test, pattern) for pattern, _ in named)}
    for test in sorted(unnamed):
        bad += 1
        print(f"FAILED {test}\n  the test is not a named exception")
    for pattern, _ in named:
        if not any(fnmatch.fnmatchcase(test, pattern) for test in failed):
            bad += 1
            print(f"FAILED {pattern}\n  no test of this name fails; remove the exception")
    if not bad and passed:
        print(f"ok conformance kit: {len(passed)} passed, {len(failed)} named exceptions, {skipped} skipped")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
