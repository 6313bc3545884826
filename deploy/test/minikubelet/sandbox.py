"""Isolation of a pod: namespaces for the whole test, a root file system and few rights for each container."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

_ENTERED = "MINIKUBELET_ENTERED"
_libc = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def hindrance():
    """Why pods cannot be run here; empty if they can."""
    if os.geteuid() != 0:
        return "it takes root to become the user of a pod and to make its file systems"
    done = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, text=True)
    return f"namespaces are not allowed here: {done.stderr.strip()}" if done.returncode != 0 else ""


def enter(*flags):
    """Starts the script again with its own mounts and network, which are removed when it ends. `flags` are further flags of
    unshare."""
    if os.environ.pop(_ENTERED, None) is None:
        os.environ[_ENTERED] = "yes"
        own = ("--mount", "--net", "--propagation", "private", *flags)
        os.execvp("unshare", ["unshare", *own, sys.executable, *sys.argv])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def make_image(directory, programs):
    """An image: a dict of paths in it and programs of this machine. Answers whether libraries were added."""
    libraries = set()
    for path, program in programs.items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, place)
        linked = subprocess.run(["ldd", program], capture_output=True, text=True)
        libraries |= {word for word in linked.stdout.split() if word.startswith("/")}
    for library in libraries:
        place = directory / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    return bool(libraries)


def make_root(root, image, hosts, mounts):
    """The root file system of a container; `mounts` are (directory, place in it, whether it may be written)."""
    root.mkdir()
    mount("--bind", root, root)
    for entry in image.iterdir():
        bind(entry, root / entry.name, False)
    for name in ("null", "urandom"):
        bind(pathlib.Path("/dev") / name, root / "dev" / name, True)
    bind(pathlib.Path("/proc"), root / "proc", True)
    (root / "etc").mkdir()
    (root / "etc" / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in ["localhost", *hosts]))
    for directory, place, writable in mounts:
        bind(directory, root / place.lstrip("/"), writable)
    mount("-o", "remount,bind,ro", root)


def remove_root(root):
    """Ends whom the first process of the container left behind, and takes the root file system away."""
    while left := inside(root):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(process)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [])  # readable when it has ended
                os.close(handle)
    # The kernel may release the files of a process a moment after its end, and nothing tells when.
    for _ in range(50):
        if subprocess.run(["umount", "--recursive", root], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--recursive", root], check=True)


def inside(root):
    """The processes that have this root file system. A process that has ended has none."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "root") == str(root):
                found.append(int(entry.name))
    return found


def bind(source, place, writable):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir() if source.is_dir() else place.touch()
    mount("--bind", source, place)
    if not writable:
        mount("-o", "remount,bind,ro", place)


def confine(root, user, group, groups):
    """Runs in a new process before it becomes the program: the root file system, the user, no capabilities."""
    os.chroot(root)
    os.chdir("/")
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(groups)
    os.setgid(group)
    os.setuid(user)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
