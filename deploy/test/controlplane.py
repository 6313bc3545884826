"""An API server with its database, and kubectl as its administrator. There are no nodes and no controllers, so admitted
objects are stored and have no effect. cluster_node.py has a cluster with both.
"""

import json
import os
import pathlib
import socket
import subprocess
import time

import certificates
import chart
import yaml
from processes import Failed, until

PLACE = chart.TOOLS / "kubernetes"
CRDS = PLACE / "crds"
# The types of other projects, in a directory for each project.
FOREIGN = PLACE / "foreign"
START_SECONDS = 180
TOKEN = "administrator"


def missing():
    """Returns the programs that are not installed."""
    return [name for name in ("etcd", "kube-apiserver", "kubectl", "crds/version") if not (PLACE / name).exists()]


class ApiServer:
    """An API server, with kubectl as its administrator in this environment."""

    def __init__(self, environment):
        self.environment = environment

    def kubectl(self, *arguments, given=None):
        """Returns the output of kubectl. `given` is its standard input. A warning counts as a failure."""
        command = [PLACE / "kubectl", "--warnings-as-errors", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            raise Failed(done.stderr)
        return done.stdout

    def apply(self, namespace, objects):
        """Applies objects. Returns their stored form, in the same order."""
        options = ("--server-side", "--validate=strict", f"--namespace={namespace}", "--filename=-", "--output=json")
        stored = json.loads(self.kubectl("apply", *options, given=yaml.safe_dump_all(objects)))
        return stored["items"] if stored["kind"] == "List" else [stored]

    def add_namespace(self, name):
        """Creates a namespace that admits only restricted pods, with the account that a controller would create in
        it."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.apply(name, [namespace, account])

    def add_types(self, project):
        """Adds the types in a directory. Returns their groups."""
        definitions = [one for types in sorted(project.glob("*.yaml")) for one in yaml.safe_load_all(types.read_text())]
        for definition in definitions:
            self.add_type(definition)
        return {definition["spec"]["group"] for definition in definitions}

    def add_type(self, definition):
        """Adds a type, and waits until it is served."""
        # A program of the project would have to convert other versions.
        definition["spec"].pop("conversion", None)
        definition.pop("status", None)
        self.apply("default", [definition])
        name = definition["metadata"]["name"]
        until(f"{name} is served", lambda: self._is_served(name))

    def _is_served(self, name):
        status = json.loads(self.kubectl("get", f"crd/{name}", "--output=json")).get("status", {})
        # At first the list is null.
        conditions = status.get("conditions") or []
        return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)

    def token(self, namespace, account, audience=None):
        """Creates a token of a ServiceAccount, as the kubelet would project it. Without an audience it is for the API
        server."""
        audiences = [f"--audience={audience}"] if audience else []
        created = self.kubectl("create", "token", account, f"--namespace={namespace}", "--duration=10m", *audiences)
        return created.strip()


class ControlPlane(ApiServer):
    """A running API server with its database. All of its files are in one directory."""

    # The address on which it listens.
    ADDRESS = "127.0.0.1"
    # 0: any free port.
    PORT = 0
    SERVICES = "10.0.0.0/24"
    ISSUER = "https://kubernetes.default.svc"
    # It does not publish its address and expects no nodes.
    FLAGS = ("--endpoint-reconciler-type=none",)

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.servers = []
        super().__init__(
            {
                **os.environ,
                "KUBECONFIG": str(self.directory / "kubeconfig"),
                "KUBECACHEDIR": str(self.directory / "cache"),
                "HELM_CACHE_HOME": str(self.directory / "helm"),
            }
        )
        try:
            self._start_database()
            self._start_server()
            self._await_ready()
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def last_words(self):
        """Returns the end of each program's log."""
        return "\n".join(f"{path.stem}:\n{path.read_text()[-800:]}" for path in sorted(self.directory.glob("*.log")))

    def end(self):
        """Kills the servers immediately, because none of their data is kept."""
        for server in self.servers:
            server.kill()
            server.wait()

    def _start_database(self):
        self._run(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls=unix://{self.directory / 'etcd.sock'}",
            f"--listen-peer-urls=unix://{self.directory / 'peer.sock'}",
            # Required, but not used.
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--unsafe-no-fsync",
        )

    def _start_server(self):
        with socket.create_server((self.ADDRESS, self.PORT)) as free:
            port = free.getsockname()[1]
        serving, tokens = self.directory / "serving", self.directory / "tokens.csv"
        self.account_key = self.directory / "accounts.key"
        self.account_key.write_text(certificates.new_key()[1])
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        # Admission has its default plugins, including Pod Security and service accounts.
        self._run(
            "kube-apiserver",
            f"--etcd-servers=unix://{self.directory / 'etcd.sock'}",
            f"--bind-address={self.ADDRESS}",
            f"--secure-port={port}",
            f"--cert-dir={serving}",
            f"--advertise-address={self.ADDRESS}",
            f"--service-cluster-ip-range={self.SERVICES}",
            f"--service-account-issuer={self.ISSUER}",
            f"--service-account-key-file={self.account_key}",
            f"--service-account-signing-key-file={self.account_key}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            *self.FLAGS,
        )
        self.url, self.authority = f"https://{self.ADDRESS}:{port}", serving / "apiserver.crt"
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        kubeconfig = {
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig = self.directory / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig))

    def _run(self, program, *arguments):
        log = self.directory / f"{program}.log"
        with log.open("w") as output:
            command = [PLACE / program, *arguments]
            self.servers.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment)
            )

    def _await_ready(self):
        """Waits until the API server has created its default roles and namespaces."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.kubectl("get", "--raw=/readyz")
                self.kubectl("get", "namespace", "default")
                return
            except Failed as failed:
                if time.monotonic() > deadline or any(server.poll() is not None for server in self.servers):
                    raise Failed(f"{failed}\n{self.last_words()}") from None
            time.sleep(0.1)
