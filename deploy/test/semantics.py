"""Checks that no other tool performs: whether the objects of a render are consistent and as documented.

Each function whose name begins with `check_` takes a Manifests and yields problems. `problems` runs all of them.
"""

import json
import re
import urllib.parse

import chart

SERVICE_DRAIN_SECONDS = 10  # the services' own deadline; docs/restarts.md
SLACK_SECONDS = 5
# Addresses within a network or a node, by the block that contains them.
INSIDE = {
    "0.0.0.0/0": ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    "::/0": ("fc00::/7", "fe80::/10"),
}

WORKLOADS = ("Deployment", "StatefulSet")


class Manifests:
    """Objects of a render, with functions to find them."""

    def __init__(self, objects, external=()):
        self.objects = objects
        # Names of ConfigMaps and Secrets that the render expects to exist.
        self.external = set(external)

    def of(self, *kinds):
        return [thing for thing in self.objects if thing["kind"] in kinds]

    def get(self, kind, name):
        return next((thing for thing in self.of(kind) if thing["metadata"]["name"] == name), None)

    def workloads(self):
        return [Workload(thing) for thing in self.of(*WORKLOADS)]

    def selected(self, labels):
        """Returns the workloads whose pods have all of these labels. An empty selector selects all."""
        return [workload for workload in self.workloads() if labels.items() <= workload.labels.items()]


class Workload:
    """A Deployment or StatefulSet, and its pods."""

    def __init__(self, thing):
        self.thing = thing
        self.kind = thing["kind"]
        self.name = thing["metadata"]["name"]
        self.spec = thing["spec"]
        # Without a number, an autoscaler creates several.
        self.replicas = self.spec.get("replicas", 2)
        self.labels = self.spec["template"]["metadata"]["labels"]
        self.pod = self.spec["template"]["spec"]
        self.main = self.pod["containers"][0]
        self.containers = [*self.pod.get("initContainers", []), *self.pod["containers"]]
        self.claims = [claim["metadata"]["name"] for claim in self.spec.get("volumeClaimTemplates", [])]

    def ports(self):
        """Returns the name and number of each port of the pod."""
        return {port["name"]: port["containerPort"] for one in self.containers for port in one.get("ports", [])}

    def arguments(self):
        return self.main["command"][1:] + self.main.get("args", [])


def problems(manifests):
    """Returns all problems, each with the check that found it."""
    checks = [(name, check) for name, check in globals().items() if name.startswith("check_")]
    return [f"{name[6:]}: {problem}" for name, check in checks for problem in check(manifests)]


def name_of(thing):
    return f"{thing['kind']} {thing['metadata']['name']}"


def selector_of(thing):
    """Returns the labels by which a Service, a budget or a policy selects pods."""
    spec = thing["spec"]
    match thing["kind"]:
        case "Service":
            return spec["selector"]
        case "PodDisruptionBudget":
            return spec["selector"]["matchLabels"]
        case _:
            return spec["podSelector"]["matchLabels"]


def check_numbers(manifests):
    """Yields numbers in exponential notation. Helm parses numbers of values as floats and writes large ones as 1e+06,
    which programs do not accept."""
    for workload in manifests.workloads():
        for argument in workload.arguments():
            if re.search(r"=[0-9.]+e\+[0-9]+$", argument):
                yield f"{name_of(workload.thing)}: {argument} is no whole number"


def check_selectors(manifests):
    for workload in manifests.workloads():
        wanted = workload.spec["selector"]["matchLabels"]
        if [found.name for found in manifests.selected(wanted)] != [workload.name]:
            yield f"{name_of(workload.thing)} does not select its own pods, or others too"
        for spread in workload.pod.get("topologySpreadConstraints", []):
            if not spread["labelSelector"]["matchLabels"].items() <= workload.labels.items():
                yield f"{name_of(workload.thing)} spreads the pods of something else"
    for thing in manifests.of("Service", "PodDisruptionBudget", "NetworkPolicy"):
        wanted = selector_of(thing)
        labels = [pod["metadata"]["labels"] for pod in chart.thread_pods(manifests.objects)]
        # Neither a Job nor the pods of threads have a selector.
        if wanted.get("app.kubernetes.io/component") == "maintenance" or any(wanted.items() <= of.items() for of in labels):
            continue
        found = {workload.labels["app.kubernetes.io/component"] for workload in manifests.selected(wanted)}
        if not wanted or len(found) != 1:
            yield f"{name_of(thing)} does not select the pods of exactly one component"


def check_ports(manifests):
    for service in manifests.of("Service"):
        for workload in manifests.selected(service["spec"]["selector"]):
            for port in service["spec"]["ports"]:
                if workload.ports().get(port["targetPort"]) is None:
                    yield f"{name_of(service)}: no container has a port called {port['targetPort']}"
                elif (
                    service["spec"].get("clusterIP") == "None" and workload.ports()[port["targetPort"]] != port["port"]
                ):
                    yield f"{name_of(service)} is headless, so its port has to be the container's"


def check_volumes(manifests):
    for workload in manifests.workloads():
        for volume in workload.pod.get("volumes", []):
            if "emptyDir" in volume and not (volume["emptyDir"] or {}).get("sizeLimit"):
                yield f"{name_of(workload.thing)}: the emptyDir {volume['name']} may fill its node"
        if any("subPath" in mount for one in workload.containers for mount in one.get("volumeMounts", [])):
            yield f"{name_of(workload.thing)} mounts a subPath, which never changes"


def references(workload):
    """Yields the ConfigMaps and Secrets that a pod needs: kind and name."""
    for volume in workload.pod.get("volumes", []):
        if secret := volume.get("secret"):
            yield "Secret", secret["secretName"]
        if source := volume.get("configMap"):
            yield "ConfigMap", source["name"]
        for source in volume.get("projected", {}).get("sources", []):
            for kind in ("ConfigMap", "Secret"):
                if named := source.get(kind[0].lower() + kind[1:]):
                    yield kind, named["name"]
    for variable in (variable for one in workload.containers for variable in one.get("env", [])):
        source = variable.get("valueFrom", {})
        for kind, key in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
            if key in source:
                yield kind, source[key]["name"]


def check_references(manifests):
    for workload in manifests.workloads():
        for kind, name in references(workload):
            if name not in manifests.external and manifests.get(kind, name) is None:
                yield f"{name_of(workload.thing)} needs {kind} {name}, which nothing makes"


def check_grace(manifests):
    for workload in manifests.workloads():
        sleep = workload.main.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        drains = [argument for argument in workload.arguments() if argument.startswith("--drain=")]
        drain = int(drains[0].removeprefix("--drain=").removesuffix("s")) if drains else SERVICE_DRAIN_SECONDS
        if set(workload.ports()) - {"admin"} and not sleep:
            yield f"{name_of(workload.thing)} closes its port before anybody has heard of it"
        if workload.pod["terminationGracePeriodSeconds"] < sleep + drain + SLACK_SECONDS:
            needs = f"preStop ({sleep} s), drain ({drain} s) and {SLACK_SECONDS} s"
            yield f"{name_of(workload.thing)}: the grace is not longer than {needs}"


def check_budgets(manifests):
    covered = []
    for budget in manifests.of("PodDisruptionBudget"):
        for workload in manifests.selected(selector_of(budget)):
            covered.append(workload.name)
            if workload.replicas < 2:
                pods = f"{workload.name} has {workload.replicas} pods"
                yield f"{name_of(budget)} would keep a node from being drained: {pods}"
    for workload in manifests.workloads():
        if workload.replicas > 1 and workload.name not in covered:
            yield f"{name_of(workload.thing)} has several pods and no budget"


def check_monitors(manifests):
    """Yields pods that Prometheus does not scrape exactly once, or cannot reach. If it scrapes one pod of a render, it
    must scrape all."""
    read = []
    for monitor in manifests.of("PodMonitor", "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        found = manifests.selected(wanted)
        read += [workload.name for workload in found]
        if monitor["kind"] == "PodMonitor":
            ports = [set(workload.ports()) for workload in found]
            asked = monitor["spec"]["podMetricsEndpoints"]
        else:
            services = [one for one in manifests.of("Service") if wanted.items() <= one["metadata"]["labels"].items()]
            ports = [{port["name"] for service in services for port in service["spec"]["ports"]}]
            asked = monitor["spec"]["endpoints"]
        for endpoint in asked:
            if not ports or not all(endpoint["port"] in names for names in ports):
                yield f"{name_of(monitor)} asks for a port {endpoint['port']}, which no container has"
    for workload in manifests.workloads():
        if read and "admin" in workload.ports() and workload.name not in read:
            yield f"{workload.name} is not read by Prometheus"
    for name in sorted(set(read)):
        if read.count(name) > 1:
            yield f"{name} is read twice by Prometheus"
        workload = next(workload for workload in manifests.workloads() if workload.name == name)
        for policy in manifests.of("NetworkPolicy"):
            if selector_of(policy).items() <= workload.labels.items():
                opened = [port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]]
                if workload.ports()["admin"] not in opened:
                    yield f"the policy of {name} keeps Prometheus out"


# The volumes with credentials of a runner.
RUNNER_CREDENTIALS = {"tokens", "client", "identity"}


def check_security(manifests):
    """Yields problems that checkov and the restricted profile of the API server do not detect."""
    for workload in manifests.workloads():
        if workload.pod.get("enableServiceLinks") is not False:
            yield f"{name_of(workload.thing)}: a Service called troupe-… would become TROUPE_* variables, which are settings"
        for one in workload.containers:
            mounted = {mount["name"] for mount in one.get("volumeMounts", [])}
            if one["name"] == "agents" and mounted & RUNNER_CREDENTIALS:
                yield f"{name_of(workload.thing)}: agents can read the credential of their runner"


def check_writer(manifests):
    """Yields problems of SQLite: only one process may use a volume, also while pods are replaced."""
    for workload in manifests.workloads():
        if workload.kind != "StatefulSet":
            continue
        if workload.replicas > 1:
            yield f"{name_of(workload.thing)} has {workload.replicas} replicas"
        for claim in workload.spec.get("volumeClaimTemplates", []):
            if claim["spec"]["accessModes"] not in (["ReadWriteOncePod"], ["ReadWriteOnce"]):
                yield f"{name_of(workload.thing)}: another pod may have its volume"
        service = manifests.get("Service", workload.spec["serviceName"])
        if service is None or service["spec"].get("clusterIP") != "None":
            yield f"{name_of(workload.thing)}: {workload.spec['serviceName']} is no headless Service"
        elif [found.name for found in manifests.selected(service["spec"]["selector"])] != [workload.name]:
            yield f"{name_of(workload.thing)}: {workload.spec['serviceName']} leads to other pods"


# The variables with the name of a supervisor's pod, and the address at which other supervisors reach it.
FIELDS = {"TROUPE_MEMBER_NAME": "metadata.name", "POD_IP": "status.podIP"}


def check_members(manifests):
    """Yields problems of several supervisors over PostgreSQL: each needs its own name and address, and must be
    replaceable."""
    for workload in manifests.workloads():
        if "supervisor-svc" not in str(workload.main["command"]) or workload.kind == "StatefulSet":
            continue
        where = name_of(workload.thing)
        variables = {variable["name"]: variable for variable in workload.main["env"]}
        if "TROUPE_STORE" not in variables:
            yield f"{where} has its log in SQLite and is no StatefulSet"
            continue
        names = list(variables)
        for name, wanted in FIELDS.items():
            field = variables.get(name, {}).get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if field != wanted:
                yield f"{where}: {name} is {field} and not {wanted}"
        address = variables.get("TROUPE_CLUSTER_ADDRESS", {}).get("value", "")
        port = workload.ports()["grpc"]
        scheme = "http"
        if any(argument.startswith("--tls-cert=") for argument in workload.arguments()):
            scheme = "https"
            if not any(argument.startswith("--cluster-server-name=") for argument in workload.arguments()):
                yield f"{where}: its pods look for their addresses in the certificates of each other"
        if not re.fullmatch(rf"{scheme}://(\$\(POD_IP\)|\[\$\(POD_IP\)\]):{port}", address):
            yield f"{where}: the others do not reach it at {address!r}"
        # Kubernetes replaces only variables that are defined earlier.
        elif "POD_IP" in names and names.index("POD_IP") > names.index("TROUPE_CLUSTER_ADDRESS"):
            yield f"{where}: the others do not reach it, POD_IP is defined after its use"
        if (rollout := workload.spec.get("strategy", {}).get("rollingUpdate", {})) != {"maxSurge": 1, "maxUnavailable": 0}:
            yield f"{where}: an update stops a supervisor before another is ready: {rollout}"
        if workload.replicas > 1 and not workload.pod.get("topologySpreadConstraints"):
            yield f"{where}: one node may have all of its pods"
        if any("emptyDir" not in volume for volume in workload.pod["volumes"] if volume["name"] == "data"):
            yield f"{where}: its pods share a data directory"
        for policy in manifests.of("NetworkPolicy"):
            spec = policy["spec"]
            if spec["podSelector"]["matchLabels"].items() <= workload.labels.items():
                if not lets(spec.get("ingress", []), "from", workload.labels, port):
                    yield f"the policy of {workload.name} keeps its pods from being called by each other"
                if not lets(spec.get("egress", []), "to", workload.labels, port):
                    yield f"the policy of {workload.name} keeps its pods from calling each other"


def calls(manifests):
    """Yields the calls between workloads, from the URLs in flags: caller, URL, and the Service, if any. A name with
    dots is external."""
    for workload in manifests.workloads():
        flags = [argument.partition("=") for argument in workload.arguments()]
        # No workload calls the browser's URL of the console.
        for value in (value for flag, _, value in flags if flag != "--public-url"):
            url = urllib.parse.urlsplit(value)
            if url.scheme in ("http", "https") and url.hostname and "." not in url.hostname:
                yield workload, url, manifests.get("Service", url.hostname)


def secret_files(workload):
    """Yields the files of Secrets whose keys the main container names: path, Secret and key."""
    secrets = {one["name"]: one["secret"] for one in workload.pod.get("volumes", []) if "secret" in one}
    for mount in workload.main.get("volumeMounts", []):
        if secret := secrets.get(mount["name"]):
            for item in secret.get("items", []):
                yield f"{mount['mountPath']}/{item['path']}", (secret["secretName"], item["key"])


def projected(workload):
    """Yields the projected volumes of the main container: the directory, and the source."""
    volumes = {one["name"]: one["projected"] for one in workload.pod.get("volumes", []) if "projected" in one}
    for mount in workload.main.get("volumeMounts", []):
        for source in volumes.get(mount["name"], {}).get("sources", []):
            yield mount["mountPath"], source


def account_tokens(workload):
    """Yields the tokens of the workload's ServiceAccount: path and audience. The audience of a token for the API server
    is None."""
    for directory, source in projected(workload):
        if token := source.get("serviceAccountToken"):
            yield f"{directory}/{token['path']}", token.get("audience")


def projected_files(workload):
    """Yields the files of projected volumes that are listed one by one."""
    yield from (path for path, _ in account_tokens(workload))
    for directory, source in projected(workload):
        for kind in ("configMap", "secret"):
            yield from (f"{directory}/{item['path']}" for item in source.get(kind, {}).get("items", []))


def named_files(workload):
    """Yields the files in flags: flag and path."""
    for argument in workload.arguments():
        flag, _, value = argument.partition("=")
        # The launcher creates its socket.
        if value.startswith("/run/") and not flag.endswith("-dir") and flag != "--launcher":
            yield flag, value


def check_files(manifests):
    for workload in manifests.workloads():
        there = {*dict(secret_files(workload)), *projected_files(workload)}
        for flag, path in named_files(workload):
            if path not in there:
                yield f"{name_of(workload.thing)}: {flag} names {path}, where nothing is mounted"


def check_identities(manifests):
    """Yields callers without valid credentials: a certificate that the service checks, the token of their account, or a
    token of the service."""
    for caller, _, service in calls(manifests):
        called = manifests.selected(selector_of(service)) if service else []
        if not called:
            continue  # others say so
        called = called[0]
        shown, known = dict(named_files(caller)), dict(named_files(called))
        if "--registry-cert" in shown or "--client-cert" in shown:
            if "--tls-client-ca" not in known:
                yield f"{called.name} does not look at the certificate of {caller.name}"
            continue
        flags = ["--supervisor-token-file", "--token-file"]
        if "/bin/registry-svc" in called.main["command"]:
            flags.insert(0, "--registry-token-file")
        token = next((shown[flag] for flag in flags if flag in shown), None)
        if audience := dict(account_tokens(caller)).get(token):
            arguments = called.arguments()
            account = re.escape(caller.pod.get("serviceAccountName", "default"))
            role = "service" if "--registry-token-file" in shown else "runner"
            grant = re.compile(rf"--jwt-role=sub:system:serviceaccount:[a-z0-9-]+:{account}={role}")
            if f"--jwt-audience={audience}" not in arguments or not any(map(grant.fullmatch, arguments)):
                yield f"{called.name} does not know the account of {caller.name}"
            continue
        secrets = dict(secret_files(called))
        presented = dict(secret_files(caller)).get(token)
        if presented and presented[0] not in {name for name, _ in secrets.values()}:
            continue  # of an identity provider
        asked = ("--token-file", "--operator-token-file", "--runner-token-file")
        tokens = {secrets.get(path) for flag, path in known.items() if flag in asked}
        if presented not in tokens:
            yield f"{called.name} does not know the token of {caller.name}"


def check_callers(manifests):
    """Yields callers of the A2A port without a credential: their token next to the configuration, or the authority of
    their certificate."""
    for workload in manifests.workloads():
        path = dict(named_files(workload)).get("--a2a-config", "")
        there = set(projected_files(workload))
        for directory, source in projected(workload):
            if path.startswith(f"{directory}/") and "configMap" in source:
                config = json.loads(manifests.get("ConfigMap", source["configMap"]["name"])["data"]["a2a.yaml"])
                for caller in config["callers"]:
                    has_certificate = "token_file" not in caller and "--tls-client-ca" in dict(named_files(workload))
                    if not has_certificate and f"{directory}/{caller.get('token_file')}" not in there:
                        yield f"{name_of(workload.thing)}: the token of {caller['name']} is not mounted"


def check_accounts(manifests):
    """Yields tokens for the API server without a use, and accounts that two components share."""
    known = [workload for workload in manifests.workloads() if list(account_tokens(workload))]
    component = "app.kubernetes.io/component"
    accounts = [account for account, _ in {(workload.pod["serviceAccountName"], workload.labels[component]) for workload in known}]
    for account in sorted({account for account in accounts if accounts.count(account) > 1}):
        yield f"several are known by the ServiceAccount {account}"
    for account in manifests.of("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"{name_of(account)} gives its token to every pod"
    for workload in manifests.workloads():
        named = dict(named_files(workload))
        for path, audience in account_tokens(workload):
            creates_pods = workload.main["command"] == ["/bin/troupe", "pods"]
            if audience is None and named.get("--jwt-keys-token") != path and not creates_pods:
                yield f"{name_of(workload.thing)} has a token for the API server, and asks it for no keys"


def check_addresses(manifests):
    for workload, url, service in calls(manifests):
        if service is None or url.port not in [port["port"] for port in service["spec"]["ports"]]:
            yield f"{name_of(workload.thing)} calls {url.geturl()}, where no Service is"


def check_ingresses(manifests):
    """Yields problems of browsers' access to the console: TLS, the URL that it accepts, and the policies."""
    for ingress in manifests.of("Ingress"):
        where = name_of(ingress)
        covered = {host for tls in ingress["spec"].get("tls", []) if tls.get("secretName") for host in tls["hosts"]}
        for rule in ingress["spec"]["rules"]:
            if rule["host"] not in covered:
                yield f"{where} has no certificate for {rule['host']}"
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                service = manifests.get("Service", backend["name"])
                ports = [port["name"] for port in service["spec"]["ports"]] if service else []
                if backend["port"]["name"] not in ports:
                    yield f"{where} leads to {backend['name']}, where no Service has that port"
                    continue
                for workload in manifests.selected(selector_of(service)):
                    urls = [one.partition("=")[2] for one in workload.arguments() if one.startswith("--public-url=")]
                    if [urllib.parse.urlsplit(url)[:2] for url in urls] != [("https", rule["host"])]:
                        yield f"{where}: {workload.name} does not know the name {rule['host']}"
                    for policy in manifests.of("NetworkPolicy"):
                        if selector_of(policy).items() <= workload.labels.items() and "ingress" not in policy["spec"]:
                            yield f"the policy of {workload.name} keeps the ingress controller out"


def lets(rules, direction, labels, port):
    """Returns whether one of the rules contains a peer with these labels and this port."""
    for rule in rules:
        peers = [peer.get("podSelector", {}).get("matchLabels") for peer in rule.get(direction, [])]
        ports = [one["port"] for one in rule.get("ports", [])]
        if port in ports and any(wanted and wanted.items() <= labels.items() for wanted in peers):
            return True
    return False


def check_network(manifests):
    """Yields pods without a policy, and calls and name resolution that the policies do not permit."""
    policies = {}
    for policy in manifests.of("NetworkPolicy"):
        for workload in manifests.selected(policy["spec"]["podSelector"]["matchLabels"]):
            policies[workload.name] = policy["spec"]
    if not policies:
        return
    for workload in manifests.workloads():
        if set(policies.get(workload.name, {}).get("policyTypes", [])) != {"Ingress", "Egress"}:
            yield f"{name_of(workload.thing)} has no policy for both directions"
            return
        for rule in policies[workload.name].get("ingress", []):
            for port in rule["ports"]:
                if port["port"] not in workload.ports().values():
                    yield f"{name_of(workload.thing)}: a policy opens port {port['port']}, which no container has"
    for workload in manifests.workloads():
        if any(argument.startswith("--jwt-keys=https://kubernetes.") for argument in workload.arguments()):
            ports = [one["port"] for rule in policies[workload.name].get("egress", []) for one in rule.get("ports", [])]
            if 6443 not in ports or 53 not in ports:
                yield f"the policy of {workload.name} keeps it from the keys of the API server"
    for caller, url, service in calls(manifests):
        called = manifests.selected(selector_of(service)) if service else []
        if not called:
            continue  # others say so
        called = called[0]
        if not lets(policies[caller.name].get("egress", []), "to", called.labels, url.port):
            yield f"the policy of {caller.name} keeps it from calling {called.name}"
        if not lets(policies[called.name].get("ingress", []), "from", caller.labels, url.port):
            yield f"the policy of {called.name} keeps {caller.name} out"
        names = [port for rule in policies[caller.name]["egress"] for port in rule.get("ports", [])]
        if not any(port["port"] == 53 and port.get("protocol") == "UDP" for port in names):
            yield f"the policy of {caller.name} keeps it from resolving names"


def check_egress(manifests):
    """Yields egress rules that permit all addresses. A rule must name its peers, and a rule for external addresses must
    exclude internal ones."""
    for policy in manifests.of("NetworkPolicy"):
        for rule in policy["spec"].get("egress", []):
            if not rule.get("to"):
                yield f"{name_of(policy)} lets out to every address"
            for block in (peer["ipBlock"] for peer in rule.get("to", []) if "ipBlock" in peer):
                for inside in sorted(set(INSIDE.get(block["cidr"], ())) - set(block.get("except", []))):
                    yield f"{name_of(policy)} lets out to {inside}, which is inside"
