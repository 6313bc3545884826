"""The node, and of the cluster what its pods need: objects, images and claimed volumes."""

import base64
import pathlib

from . import sandbox
from .pod import Pod
from .volumes import make_directory


class Node:
    def __init__(self, directory, objects):
        self.directory = pathlib.Path(directory)
        # Everything below is bound into pods, whose user has to get there.
        self.directory.chmod(0o755)
        self.objects = {(thing["kind"], thing["metadata"]["name"]): thing for thing in objects}
        self.images = {}
        self.claims = {}
        self.pods = []
        self.linked = False

    def add_image(self, name, programs):
        """Makes an image known by its name without a tag: a dict of paths in it and programs of this machine."""
        directory = self.directory / "images" / name.replace("/", "_")
        directory.mkdir(parents=True)
        self.linked |= sandbox.make_image(directory, programs)
        self.images[name] = directory

    def image(self, reference):
        return self.images[reference.rpartition(":")[0]]

    def apply(self, kind, name, data):
        """Makes or changes a ConfigMap or Secret; running pods see it after a sync."""
        if kind == "Secret":
            data = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        self.objects[kind, name] = {"kind": kind, "metadata": {"name": name}, "data": data}

    def data(self, kind, name):
        """The content of a ConfigMap or Secret, as bytes."""
        data = self.objects[kind, name]["data"]
        return {key: base64.b64decode(text) if kind == "Secret" else text.encode() for key, text in data.items()}

    def sync(self):
        for pod in self.pods:
            pod.sync()

    def services(self):
        return [name for kind, name in self.objects if kind == "Service"]

    def claim(self, name, group):
        """The directory of a claim. It outlives its pod."""
        if name not in self.claims:
            self.claims[name] = self.directory / "claims" / name
            make_directory(self.claims[name], group, 0o2775)
        return self.claims[name]

    def pod(self, kind, name, suffix="0"):
        """A pod of a workload. One of a StatefulSet with the same suffix has the same volumes."""
        return Pod(self, self.objects[kind, name], f"{name}-{suffix}")
