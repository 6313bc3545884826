"""Namespaces for a whole test, and their content: mounts, and the files of images."""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

_ENTERED = "TROUPE_SANDBOX_ENTERED"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def hindrance():
    """Returns why namespaces cannot be created here, or an empty text."""
    if os.geteuid() != 0:
        return "it takes root to have other users and mounts"
    done = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, text=True)
    return f"namespaces are not allowed here: {done.stderr.strip()}" if done.returncode != 0 else ""


def enter(*flags):
    """Starts the script again with its own mounts and network, which are removed when it ends. `flags` are further
    flags of unshare."""
    if os.environ.pop(_ENTERED, None) is None:
        os.environ[_ENTERED] = "yes"
        own = ("--mount", "--net", "--propagation", "private", *flags)
        os.execvp("unshare", ["unshare", *own, sys.executable, *sys.argv])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def show(directory, place):
    """Makes a directory readable at another path, which is created."""
    place.mkdir()
    mount("--bind", directory, place)
    mount("-o", "remount,bind,ro", place)


def make_image(directory, programs):
    """Copies programs of this machine, with their libraries, into the directory of an image. `programs` maps paths in
    the image to local paths."""
    files = dict(programs)
    for program in programs.values():
        linked = subprocess.run(["ldd", program], capture_output=True, text=True)
        files |= {word: word for word in linked.stdout.split() if word.startswith("/")}
    for path, source in files.items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
