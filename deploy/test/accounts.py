"""Checks tokens of ServiceAccounts with the accounts, files and flags of the chart. A real API server issues the
tokens, and the real programs send them to the real services, which fetch the keys from the API server.
"""

import json
import os
import pathlib
import subprocess

import chart
import semantics
from processes import Failed, Process, until

VALUES = pathlib.Path(__file__).resolve().parent / "values" / "service-account-tokens.yaml"
# The namespace that chart.render uses.
NAMESPACE = "troupe"
REGISTRY = "troupe.registry.v1.AgentRegistryService"
SUPERVISOR = "troupe.supervisor.v1.AgentSupervisorService"
SECONDS = 60


class Installation:
    """The accounts of a render, and its programs as processes. The directory of a component replaces `/run` of its
    pod."""

    def __init__(self, plane, programs, directory):
        self.plane = plane
        self.programs = programs
        self.directory = directory
        self.environment = {"HOME": str(directory), "PATH": os.environ["PATH"]}
        self.processes = []
        rendered = semantics.Manifests(chart.objects(chart.render(VALUES)))
        self.workloads = {one.labels["app.kubernetes.io/component"]: one for one in rendered.workloads()}
        plane.add_namespace(NAMESPACE)
        plane.apply(NAMESPACE, rendered.of("ServiceAccount"))
        # The values name an existing account.
        there = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.account("runner")}}
        plane.apply(NAMESPACE, [there])
        for component in self.workloads:
            self.project(component)

    def account(self, component):
        return self.workloads[component].pod["serviceAccountName"]

    def audience(self):
        """Returns the audience of the runner's token."""
        ((_, audience),) = semantics.account_tokens(self.workloads["runner"])
        return audience

    def token(self, account, audience):
        return self.plane.token(NAMESPACE, account, audience)

    def local(self, component, path):
        """Returns the local path of a pod's file."""
        return self.directory / component / pathlib.PurePath(path).relative_to("/run")

    def project(self, component):
        """Creates the files of a pod's projected volumes, as the kubelet does."""
        workload = self.workloads[component]
        tokens = dict(semantics.account_tokens(workload))
        for path in semantics.projected_files(workload):
            is_token = path in tokens
            text = self.token(self.account(component), tokens[path]) if is_token else self.plane.authority.read_text()
            file = self.local(component, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def flags(self, component):
        """Yields the flags of the chart that set the accepted tokens and the token to send, with local paths."""
        there = set(semantics.projected_files(self.workloads[component]))
        for argument in self.workloads[component].main["args"]:
            flag, _, value = argument.partition("=")
            if value in there:
                yield f"{flag}={self.local(component, value)}"
            elif flag.startswith("--jwt-"):
                yield argument.replace("https://kubernetes.default.svc/openid/", f"{self.plane.url}/openid/")

    def start(self, name, *command):
        self.processes.append(Process(name, command, self.directory, self.environment))
        return self.processes[-1]

    def serve(self, component, *arguments):
        """Starts a service. Returns its address."""
        ready = self.directory / f"{component}.json"
        flags = [f"--{component}-listen=127.0.0.1:0", f"--ready-file={ready}", *self.flags(component)]
        process = self.start(f"{component}-svc", self.programs / f"{component}-svc", *flags, *arguments)

        def is_ready():
            process.expect_alive()
            return ready.exists()

        until(f"{component}-svc serves", is_ready)
        return json.loads(ready.read_text())[component]

    def stop(self):
        return [process.stop() for process in reversed(self.processes)]


def call(address, method, token, request=None):
    command = ["grpcurl", "-plaintext", "-max-time", "30", "-d", json.dumps(request or {})]
    command += ["-H", f"authorization: Bearer {token}", address, method]
    return subprocess.run(command, capture_output=True, text=True)


def answer(*arguments):
    done = call(*arguments)
    if done.returncode != 0:
        raise Failed(done.stdout + done.stderr)
    return json.loads(done.stdout)


def known(address, method, token, word):
    """Waits until the service has fetched the keys, because it rejects tokens before that. Then returns the call's output if
    it does not contain the word, or an empty text."""

    def find():
        done = call(address, method, token)
        said = done.stdout + done.stderr
        if "Code: Unauthenticated" in said:
            return None
        return said

    said = until(f"{address} has the keys", find)
    return "" if word in said else said


def check_registry(report, installed, registry):
    listing = f"{REGISTRY}/ListAgents"
    supervisor, audience = installed.account("supervisor"), installed.audience()
    good = installed.token(supervisor, audience)
    problem = known(registry, listing, good, "worker")
    report.check("the registry knows the supervisor's account, by the keys of the API server", problem)
    bad = {
        "the runner's account": (installed.account("runner"), audience),
        "an account that is granted nothing": ("default", audience),
        "a token for somebody else": (supervisor, "other"),
        "a token for the API server": (supervisor, None),
    }
    for name, (account, other) in bad.items():
        done = call(registry, listing, installed.token(account, other))
        is_refused = "Code: Unauthenticated" in done.stderr
        report.check(f"the registry refuses {name}", "" if is_refused else done.stdout + done.stderr)
    broken = good[:-8] + ("A" * 8 if not good.endswith("A" * 8) else "B" * 8)
    done = call(registry, listing, broken)
    is_refused = "Code: Unauthenticated" in done.stderr
    report.check("the registry refuses a signature of nobody's", "" if is_refused else done.stdout + done.stderr)


def check_supervisor(report, installed, supervisor):
    runner, audience = installed.account("runner"), installed.audience()
    # The runner only attaches and executes nothing.
    listing = f"{SUPERVISOR}/ListSessions"
    problem = known(supervisor, listing, installed.token(runner, audience), "Code: PermissionDenied")
    report.check("the supervisor knows the runner's account, as a runner and no operator", problem)
    command = [installed.programs / "troupe", "run", f"--supervisor=http://{supervisor}"]
    bad = {
        "the supervisor's account": (installed.account("supervisor"), audience),
        "an account that is granted nothing": ("default", audience),
        "a token for somebody else": (runner, "other"),
        "a token for the API server": (runner, None),
    }
    for name, (account, other) in bad.items():
        file = installed.directory / "bad.token"
        file.write_text(installed.token(account, other))
        done = subprocess.run(
            [*command, f"--token-file={file}"],
            capture_output=True,
            text=True,
            cwd=installed.directory,
            env=installed.environment,
            timeout=SECONDS,
        )
        is_refused = done.returncode != 0 and "Unauthenticated" in done.stderr
        report.check(f"the supervisor refuses a runner with {name}", "" if is_refused else done.stdout + done.stderr)
    installed.start("troupe-runner", *command, *installed.flags("runner"))


def check_spawn(report, installed, supervisor):
    """Checks that the supervisor calls the registry with its token, and that the runner has attached with its own."""
    operator = (installed.directory / "data" / "operator.token").read_text().strip()

    def ask(method, request):
        return answer(supervisor, f"{SUPERVISOR}/{method}", operator, request)

    session = ask("CreateSession", {})["session"]["sessionId"]
    spawned = ask("SpawnAgent", {"session_id": session, "agent_type": "worker", "message": "Do nothing."})
    waited = ask("WaitAgents", {"thread_ids": [spawned["thread"]["threadId"]], "timeout": "20s"})
    is_done = "STATUS_KIND_COMPLETED" in json.dumps(waited)
    report.check("a spawn goes through all three", "" if is_done else json.dumps(waited))


def check(report, plane, directory):
    if "TROUPE_BIN" not in os.environ:
        report.not_checked("tokens of ServiceAccounts: TROUPE_BIN does not say where the programs are")
        return
    directory.mkdir()
    installed = Installation(plane, pathlib.Path(os.environ["TROUPE_BIN"]), directory)
    try:
        registry = installed.serve("registry")
        supervisor = installed.serve(
            "supervisor", "--data-dir=data", "--require-token", f"--registry-url=http://{registry}"
        )
        check_registry(report, installed, registry)
        check_supervisor(report, installed, supervisor)
        check_spawn(report, installed, supervisor)
    except Failed as failed:
        report.check("tokens of ServiceAccounts say who is who", str(failed))
    finally:
        problems = installed.stop()
    report.check("those who are known by them end when they are told to", problems)
