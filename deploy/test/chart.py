"""Renders the chart with helm."""

import json
import os
import pathlib
import subprocess

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
CHART = DEPLOY / "chart"
TOOLS = pathlib.Path(
    os.environ.get("TROUPE_TOOLS")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "troupe-tools"
)
HELM = TOOLS / "bin" / "helm"
KUBE_SCORE = TOOLS / "bin" / "kube-score"
CHECKOV = TOOLS / "checkov" / "bin" / "checkov"
# The supported minor versions. Chart.yaml has the first, and the schemas of deploy/test/install have the last.
OLDEST, NEWEST = "1.30.0", "1.37.0"


class Refused(Exception):
    """Helm did not render the chart. The text contains the reason."""


def render(values=None, version=OLDEST, release="troupe", settings=(), options=()):
    """Returns the text that helm renders from the chart with a file of values, `--set` of each setting, and other
    options."""
    command = [HELM, "template", release, CHART, "--namespace", "troupe", "--kube-version", version]
    command += ["--values", values] if values else []
    for setting in settings:
        command += ["--set", setting]
    command += options
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


def objects(text):
    """Returns the objects of a stream of YAML documents."""
    return [document for document in yaml.safe_load_all(text) if document]


def thread_pods(objects):
    """Yields the pods for threads that a render's Deployments of `troupe pods` create, each with a name."""
    for thing in objects:
        if thing["kind"] == "SandboxTemplate":
            pod = {"apiVersion": "v1", "kind": "Pod", **thing["spec"]["podTemplate"]}
            yield named(pod, thing)
    yield from made_for_threads(objects, "Pod")


def made_for_threads(objects, kind):
    """Yields the objects of one kind that those Deployments create."""
    for thing in objects:
        if thing["kind"] == "ConfigMap" and "pod.json" in thing.get("data", {}):
            made = json.loads(thing["data"]["pod.json"])
            if made["kind"] == kind:
                yield named(made, thing)


def named(made, thing):
    return {**made, "metadata": {**made["metadata"], "name": f"{thing['metadata']['name']}-thread"}}
