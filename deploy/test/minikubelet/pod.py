"""A pod: from its volumes to its end."""

import json
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from . import sandbox
from .volumes import Volume

GRPCURL = "grpcurl"
# Seconds until a pod has to be ready.
READY_WITHIN = 60
# The supported fields of pods and containers. Only one value of each is supported.
_POD = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": None,
    "terminationGracePeriodSeconds": None,
    "restartPolicy": "Never",
    "containers": None,
    "volumes": None,
}
_CONTAINER = {
    "name": None,
    "image": None,
    "imagePullPolicy": "IfNotPresent",
    "command": None,
    "args": None,
    "env": None,
    "ports": None,
    "resources": None,  # nobody measures
    "volumeMounts": None,
    "startupProbe": None,
    "readinessProbe": None,
    "livenessProbe": None,
    "lifecycle": None,
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}


class Failed(Exception):
    """A pod did not do what its spec wants of it."""


def refuse_unknown(spec, known):
    for field, value in spec.items():
        if field not in known or known[field] not in (None, value):
            raise NotImplementedError(f"{field}: {value}")


class Pod:
    def __init__(self, node, workload, name):
        self.node = node
        self.name = name
        self.spec = workload["spec"]["template"]["spec"]
        refuse_unknown(self.spec, _POD)
        for container in self.spec["containers"]:
            refuse_unknown(container, _CONTAINER)
        self.claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        (self.main,) = self.spec["containers"]
        self.context = self.spec["securityContext"]
        self.process = None
        self.roots = []

    # -- starting

    def start(self, until_ready=True):
        """As far as ready, or as started. Fails with the output of `kubectl describe` and `kubectl logs`."""
        self.prepare()
        self.process = self.run(self.main)
        self.await_start(until_ready)
        return self

    def complete(self, seconds=60):
        """Runs a pod that ends by itself. Returns its output."""
        self.prepare()
        try:
            self.process = self.run(self.main)
            status = self.process.wait(timeout=seconds)
            if status != 0:
                raise Failed(f"{self.main['name']} ended with {status}; the log:\n{self.log()}")
            return self.log()
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} was still there after {seconds} s; the log:\n{self.log()}") from None
        finally:
            self.kill()

    def prepare(self):
        """Its directory and its volumes."""
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}.", dir=self.node.directory))
        self.directory.chmod(0o755)
        group = self.context["fsGroup"]
        self.volumes = {}
        for spec in self.spec.get("volumes", []):
            self.volumes[spec["name"]] = Volume(spec, self.directory / "volumes" / spec["name"], group, self.node)
        self.node.pods.append(self)

    def run(self, container):
        root = self.directory / f"root-{container['name']}"
        mounts = []
        for mount in container["volumeMounts"]:
            volume = self.volumes.get(mount["name"])
            path = volume.path if volume else self.node.claim(f"{mount['name']}-{self.name}", self.context["fsGroup"])
            mounts.append((path, mount["mountPath"], not mount.get("readOnly", False)))
        sandbox.make_root(root, self.node.image(container["image"]), self.node.services(), mounts)
        self.roots.append(root)
        context = self.context
        with open(self.directory / f"{container['name']}.log", "ab") as log:
            return subprocess.Popen(
                container["command"] + container.get("args", []),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(container),
                preexec_fn=lambda: sandbox.confine(
                    root, context["runAsUser"], context["runAsGroup"], [context["fsGroup"]]
                ),
            )

    def environment(self, container):
        """What an image from scratch, a runtime and the pod make of it."""
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/",
            "HOSTNAME": self.name,
        }
        fields = {"metadata.name": self.name}
        for variable in container.get("env", []):
            is_field = "valueFrom" in variable
            value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]] if is_field else variable["value"]
            environment[variable["name"]] = value
        return environment

    def await_start(self, until_ready):
        """Until it is started or ready, and the liveness probe once; without probes a second of life."""
        startup = self.main.get("startupProbe")
        if startup:
            self.await_probe("startup", startup["failureThreshold"] * startup["periodSeconds"])
        else:
            time.sleep(1)
            self.expect_alive()
        if until_ready and "readinessProbe" in self.main:
            self.await_probe("readiness", READY_WITHIN)
        if "livenessProbe" in self.main and not self.probe("liveness"):
            raise Failed("the liveness probe fails after the start")

    def await_probe(self, kind, seconds):
        """Until it succeeds. More often than the kubelet asks, within the same time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.expect_alive()
            if self.probe(kind):
                return
            time.sleep(0.1)
        raise Failed(f"the {kind} probe never succeeded; the log:\n{self.log()}")

    def expect_alive(self):
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended with {self.process.returncode}; the log:\n{self.log()}")

    # -- running

    def probe(self, kind):
        """Whether a probe succeeds now. As the kubelet's: plaintext, without a token."""
        probe = self.main[f"{kind}Probe"]
        if "httpGet" in probe:
            url = f"http://127.0.0.1:{probe['httpGet']['port']}{probe['httpGet']['path']}"
            # A kubelet sends the pod's address as Host.
            request = urllib.request.Request(url, headers={"Host": "10.0.0.1"})
            try:
                with urllib.request.urlopen(request, timeout=probe.get("timeoutSeconds", 1)) as answer:
                    return answer.status == 200
            except OSError:
                return False
        done = subprocess.run(
            [GRPCURL, "-plaintext", "-max-time", str(probe.get("timeoutSeconds", 1)), "-d"]
            + [json.dumps({"service": probe["grpc"].get("service", "")})]
            + [f"127.0.0.1:{probe['grpc']['port']}", "grpc.health.v1.Health/Check"],
            capture_output=True,
            text=True,
        )
        return done.returncode == 0 and '"SERVING"' in done.stdout

    def sync(self):
        for volume in self.volumes.values():
            volume.sync()

    def status(self):
        """What the system says about the process: the fields of /proc/PID/status."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}

    def log(self):
        text = (self.directory / f"{self.main['name']}.log").read_text()
        return text[-4000:]

    # -- ending

    def stop(self, during_pre_stop=None):
        """preStop, SIGTERM, and after the grace SIGKILL, which fails. Answers the seconds from SIGTERM to the end.

        `during_pre_stop` is called when the pod is on its way out and was not told so yet.
        """
        grace = self.spec["terminationGracePeriodSeconds"]
        sleep = self.main.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        began = time.monotonic()
        if during_pre_stop:
            during_pre_stop()
        time.sleep(max(0.0, sleep - (time.monotonic() - began)))
        self.expect_alive()
        told = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=grace - sleep)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"{self.name} was still there after its grace of {grace} s; the log:\n{self.log()}") from None
        self.clear()
        if self.process.returncode != 0:
            raise Failed(f"{self.name} ended with {self.process.returncode}; the log:\n{self.log()}")
        return time.monotonic() - told

    def kill(self):
        """As a node that fails would end it."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.clear()

    def clear(self):
        """Its mounts and its volumes go; what it claimed stays."""
        if self in self.node.pods:
            self.node.pods.remove(self)
        for root in self.roots:
            sandbox.remove_root(root)
        self.roots = []
        shutil.rmtree(self.directory / "volumes", ignore_errors=True)
