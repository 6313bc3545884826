"""Programs that run during a check, each with its output in a file, and functions that wait for their results."""

import subprocess
import time

SECONDS = 60


class Failed(Exception):
    """A result did not arrive in time, a command failed, or a call was rejected. The text describes it."""


def until(what, find):
    """Waits for the first true result of `find`."""
    deadline = time.monotonic() + SECONDS
    while not (found := find()):
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {SECONDS} s")
        time.sleep(0.1)
    return found


class Process:
    """A program that runs in the directory, which also contains its output."""

    def __init__(self, name, command, directory, environment):
        self.name = name
        self.output, self.log = directory / f"{name}.out", directory / f"{name}.log"
        with self.output.open("w") as output, self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=directory, env=environment
            )

    def expect_alive(self):
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended:\n{self.log.read_text()}")

    def stop(self):
        """Returns the problem if the program does not end by itself."""
        self.process.terminate()
        try:
            status = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not stop"
        return "" if status == 0 else f"{self.name} ended with {status}:\n{self.log.read_text()}"
