"""Volumes as the kubelet makes them: their owner, their permissions, and the way their files change.

Files of ConfigMaps and Secrets are links: `x.md -> ..data/x.md`, `..data -> ..2026_11_21_…`. An update writes a new
directory and moves `..data`, so that a reader sees all old files or all new ones (pkg/volume/util/atomic_writer.go).
"""

import itertools
import os
import shutil
import time

_numbers = itertools.count(1)


def make_directory(path, group, mode):
    """A directory of root's for the pod's group, which its files inherit."""
    os.makedirs(path)
    os.chown(path, 0, group)
    os.chmod(path, mode)


def write_files(directory, files, group, mode):
    """Brings the files of a volume to this content: a dict of names and bytes. At first and at each update."""
    generation = time.strftime("..%Y_%m_%d_%H_%M_%S.") + f"{next(_numbers):09d}"
    target = directory / generation
    make_directory(target, group, 0o2775)
    for name, content in files.items():
        path = target / name
        path.write_bytes(content)
        os.chown(path, 0, group)
        # A group of the pod's may read in any case.
        os.chmod(path, mode | 0o440)
    data = directory / "..data"
    before = os.readlink(data) if data.is_symlink() else None
    os.symlink(generation, directory / "..data_tmp")
    os.rename(directory / "..data_tmp", data)
    for name in files:
        if not (directory / name).is_symlink():
            os.symlink(f"..data/{name}", directory / name)
    for entry in os.listdir(directory):
        if not entry.startswith("..") and entry not in files:
            os.remove(directory / entry)
    if before:
        shutil.rmtree(directory / before)


class Volume:
    """A volume of a pod: a directory, and what brings its files up to date."""

    def __init__(self, spec, path, group, node):
        self.name = spec["name"]
        self.path = path
        self.group = group
        self.node = node
        self.spec = {key: value for key, value in spec.items() if key != "name"}
        (self.kind,) = self.spec
        if self.kind == "emptyDir":
            make_directory(path, group, 0o2777)
        elif self.kind in ("secret", "projected"):
            make_directory(path, group, 0o2755)
            self.sync()
        elif self.kind == "persistentVolumeClaim":
            self.path = node.claim(spec[self.kind]["claimName"], group)
        else:
            raise NotImplementedError(f"volumes of kind {self.kind}")

    def sync(self):
        """What the kubelet does every minute or so: an update of the objects reaches the files."""
        if self.kind in ("emptyDir", "persistentVolumeClaim"):
            return
        source = self.spec[self.kind]
        write_files(self.path, self.files(source), self.group, source.get("defaultMode", 0o644))

    def files(self, source):
        if self.kind == "secret":
            return self.chosen("Secret", source["secretName"], source)
        files = {}
        for one in source["sources"]:
            ((kind, what),) = one.items()
            files |= self.chosen({"configMap": "ConfigMap", "secret": "Secret"}[kind], what["name"], what)
        return files

    def chosen(self, kind, name, source):
        """The files of a ConfigMap or Secret: those of its items, or all."""
        data = self.node.data(kind, name)
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        return {item["path"]: data[item["key"]] for item in items}
