"""A cluster of one node, with the programs of any other cluster: API server, controllers, scheduler, container runtime,
kubelet, proxy, DNS and an enforcer of network policies. Its processes, mounts and addresses are in separate namespaces,
so nothing of it is left when the script ends, and it reaches nothing outside.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import controlplane
import sandbox
import yaml
from controlplane import FOREIGN, PLACE, ControlPlane
from sandbox import mount
from processes import Failed, until

PROGRAMS = (
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "coredns",
    "policies",
    "agent-sandbox-controller",
)
PLUGINS = pathlib.Path("/usr/lib/cni")
# The setting of the kernel's br_netfilter. Without it, policies do not apply between pods of one node.
POLICIES = pathlib.Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
NAME = "node"
PODS = "10.91.0.0/24"
DNS = "10.0.0.10"
DOMAIN = "cluster.local"
SOCKET = "/run/containerd/containerd.sock"
# The image of the program that holds the namespaces of a pod and does nothing else.
SANDBOX = "localhost/sandbox:1"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Kernel settings that the kubelet would change.
KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
SECONDS = 120


def hindrance():
    """Returns why a cluster cannot run here, or an empty text."""
    absent = controlplane.missing() + [name for name in PROGRAMS if not (PLACE / name).exists()]
    absent += [name for name in ("runc", "nft", "ip", "iptables", "ipset", "buildah") if not shutil.which(name)]
    absent += [str(path) for path in (PLUGINS, POLICIES) if not path.exists()]
    if absent:
        return f"there is no {' and no '.join(absent)}; .ci/install and deploy/test/install say why"
    return sandbox.hindrance()


def enter():
    """Starts the script again as the first process of new namespaces, so that every process that it starts ends with
    it. Returns a directory that is removed with them."""
    sandbox.enter("--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts")
    # Some programs use fixed paths below /run.
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    directory = pathlib.Path("/run/troupe")
    directory.mkdir()
    return directory


class Cluster(ControlPlane):
    """A running cluster. Its servers listen on the node's address, which pods can reach as well."""

    # The address in docs/kubernetes.md, and its port for addresses other than the Service's.
    ADDRESS, PORT = "192.0.2.10", 6443
    ISSUER = f"https://kubernetes.default.svc.{DOMAIN}"
    # The node's name is not resolvable.
    FLAGS = ("--kubelet-preferred-address-types=InternalIP",)

    def __init__(self, directory):
        self.cgroups = f"troupe-test-{os.getpid()}-{time.time_ns()}"
        _make_network(self.ADDRESS)
        _keep_kernel(directory)
        super().__init__(directory)
        try:
            self._start_controllers()
            self._start_runtime()
            self._start_kubelet()
            self._start_proxy()
            self._start_dns()
        except BaseException:
            self.end()
            raise

    def add_image(self, archive):
        """Adds an image to the node, under the name that it has in the archive."""
        command = [PLACE / "ctr", f"--address={SOCKET}", "--namespace=k8s.io", "images", "import", archive]
        _run(*command, environment=self.environment)

    def add_volume(self, name, size, mode, directory=None):
        """Creates a volume of the default storage class with that access mode, in a new directory of the node, or with
        another mount of an existing directory."""
        path = self.directory / "volumes" / name
        path.mkdir(parents=True)
        if directory:
            mount("--bind", directory, path)
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": [mode],
                "storageClassName": "local",
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }
        self.apply("default", [volume])

    def await_node(self):
        """Waits until pods can be scheduled."""
        self.kubectl("wait", "--for=create", f"node/{NAME}", f"--timeout={SECONDS}s")
        self.kubectl("wait", "--for=condition=Ready", f"node/{NAME}", f"--timeout={SECONDS}s")
        self._run("policies", f"--kubeconfig={self.kubeconfig}", f"--node={NAME}", f"--services={self.SERVICES}")

    def add_sandboxes(self):
        """Adds the types of agent-sandbox, and starts its controller."""
        self.add_types(FOREIGN / "agent-sandbox")
        nowhere = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
        self._run("agent-sandbox-controller", "--extensions", "--enable-webhook=false", "--leader-elect=false", *nowhere)

    def end(self):
        super().end()
        # Processes end with their namespace, but the control groups of pods would remain.
        groups = [group for hierarchy in _hierarchies() for group in hierarchy.glob(f"{self.cgroups}/**/")]
        for group in sorted(groups, reverse=True):
            until(f"{group} is empty", functools.partial(_remove, group))

    def _start_controllers(self):
        access = f"--kubeconfig={self.kubeconfig}"
        self._run(
            "kube-controller-manager",
            access,
            f"--service-account-private-key-file={self.account_key}",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
        )
        self._run("kube-scheduler", access, "--leader-elect=false")
        self.apply(
            "default",
            [
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {
                        "name": "local",
                        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                    },
                    "provisioner": "kubernetes.io/no-provisioner",
                    "volumeBindingMode": "WaitForFirstConsumer",
                    # Permits requests for a larger volume, which no provisioner fulfils.
                    "allowVolumeExpansion": True,
                }
            ],
        )

    def _start_runtime(self):
        plugins = self.directory / "cni"
        plugins.mkdir()
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": PODS}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(self.directory / "addresses"),
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
        (plugins / "10-pods.conflist").write_text(json.dumps(network))
        config = self.directory / "containerd.toml"
        config.write_text(
            f"""version = 3
root = "{self.directory}/containerd"
state = "/run/containerd"

[grpc]
address = "{SOCKET}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{SANDBOX}"

[plugins.'io.containerd.cri.v1.runtime']
# No process can have a lower OOM score than the process that started the test.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{PLUGINS}"]
conf_dir = "{plugins}"
"""
        )
        self.environment["PATH"] = f"{PLACE}:{self.environment['PATH']}"
        self._run("containerd", f"--config={config}")

    def _start_kubelet(self):
        names = self.directory / "resolv.conf"
        names.write_text(f"nameserver {self.ADDRESS}\n")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.ADDRESS,
            # The network contains no other client.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "clusterDNS": [DNS],
            "clusterDomain": DOMAIN,
            "resolvConf": str(names),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroups}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            # A full disk must not affect the test.
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": str(self.directory / "logs"),
            "volumePluginDir": str(self.directory / "plugins"),
            # The delay until a changed Secret or ConfigMap is visible in pods. The default is a minute.
            "syncFrequency": "2s",
        }
        self._make_cgroups()
        self._run(
            "kubelet",
            f"--config={self._config('kubelet', kubelet)}",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--cert-dir={self.directory / 'kubelet-certificates'}",
            f"--hostname-override={NAME}",
            f"--node-ip={self.ADDRESS}",
        )

    def _start_proxy(self):
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "bindAddress": self.ADDRESS,
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "clusterCIDR": PODS,
            "hostnameOverride": NAME,
            "oomScoreAdj": 0,
            # These settings would apply to the whole machine.
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
        self._run("kube-proxy", f"--config={self._config('kube-proxy', proxy)}")

    def _start_dns(self):
        """Starts the DNS. Pods reach it at the address of a Service, as in other clusters."""
        corefile = self.directory / "Corefile"
        corefile.write_text(
            f""".:53 {{
  bind {self.ADDRESS}
  errors
  kubernetes {DOMAIN} {{
    kubeconfig {self.kubeconfig} test
  }}
}}
"""
        )
        self._run("coredns", f"-conf={corefile}")
        ports = [{"name": name, "protocol": name.upper(), "port": 53} for name in ("udp", "tcp")]
        self.apply(
            "kube-system",
            [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "kube-dns"},
                    "spec": {"clusterIP": DNS, "ports": ports},
                },
                {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {"name": "kube-dns", "labels": {"kubernetes.io/service-name": "kube-dns"}},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": [self.ADDRESS]}],
                    "ports": ports,
                },
            ],
        )

    def _config(self, name, content):
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content))
        return file

    def _make_cgroups(self):
        """Creates the parent control group of all pods, in each hierarchy."""
        for hierarchy in _hierarchies():
            group = hierarchy / self.cgroups
            group.mkdir()
            # Control groups of version 1 cannot contain processes without these settings.
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / "cgroup.clone_children").exists() and (group / name).exists():
                    (group / name).write_text((hierarchy / name).read_text())


def _hierarchies():
    """Returns the roots of the control groups: one with version 2, and one for each set of controllers with version
    1."""
    places = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else CGROUPS.iterdir()
    return [place for place in places if (place / "cgroup.procs").exists() and not place.is_symlink()]


def _remove(group):
    """Kills the processes of a group. Returns whether the group is removed."""
    for process in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def _make_network(address):
    """Creates a network that contains only the node and its pods."""
    for command in (
        ("ip", "link", "add", "node", "type", "bridge"),
        ("ip", "address", "add", f"{address}/24", "dev", "node"),
        ("ip", "link", "set", "node", "up"),
        ("ip", "route", "add", "default", "dev", "node"),
        ("sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"),
        ("sysctl", "--quiet", "--write", "net.bridge.bridge-nf-call-iptables=1"),
    ):
        _run(*command)


def _keep_kernel(directory):
    """Gives the kernel settings the values that the kubelet expects, so that it does not change them for the whole
    machine."""
    for number, (name, value) in enumerate(KERNEL.items()):
        setting = directory / f"kernel-{number}"
        setting.write_text(f"{value}\n")
        mount("--bind", setting, f"/proc/sys/{name}")


def _run(*command, environment=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: {done.stderr}")
