"""Runs tools that report problems by their exit status and their output."""

import pathlib
import re
import subprocess
import sys
import tempfile

# Tools are found in the environment of deploy/test/install, which also runs this script.
VALIDATE = pathlib.Path(sys.executable).parent / "kubernetes-validate"


def output_of(command):
    """Returns the output of a command, if it failed."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode != 0 else ""


def schema_problems(text, version):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return output_of([VALIDATE, "--strict", "--quiet", "--kubernetes-version", version, file.name])


def unknown_flags(programs, command, arguments):
    """Yields flags that a command does not have. Arguments after `--program` belong to another program."""
    program = programs / pathlib.Path(command[0]).name
    known = subprocess.run([program, *command[1:], "--help"], capture_output=True, text=True, check=True).stdout
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("--") and not re.search(rf"^\s+{flag}\b", known, re.MULTILINE):
            yield f"{' '.join(command)} has no {flag}"
        if flag == "--program":
            break
