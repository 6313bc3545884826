"""Faults that a schema does not detect. Each is planted into a render, in which semantics.py must find it.

A fault is a function that changes objects, which it finds by kind and name. Its docstring is a part of the text of the
problem that it must cause.
"""


def selector_of_a_service(find):
    """Service troupe-supervisor does not select"""
    find("Service", "troupe-supervisor")["spec"]["selector"]["app.kubernetes.io/component"] = "supervisors"


def number_that_is_a_power(find):
    """--capacity=1e+06 is no whole number"""
    arguments = pod(find("Deployment", "troupe-runner"))["containers"][0]["args"]
    arguments[:] = ["--capacity=1e+06" if "--capacity" in argument else argument for argument in arguments]


def selector_of_a_budget(find):
    """PodDisruptionBudget troupe-registry does not select"""
    find("PodDisruptionBudget", "troupe-registry")["spec"]["selector"]["matchLabels"] = {"app": "registry"}


def selector_that_is_too_wide(find):
    """Deployment troupe-registry does not select its own pods, or others too"""
    find("Deployment", "troupe-registry")["spec"]["selector"]["matchLabels"].pop("app.kubernetes.io/component")


def target_port_without_a_container(find):
    """no container has a port called http"""
    find("Service", "troupe-registry")["spec"]["ports"][0]["targetPort"] = "http"


def secret_that_nothing_makes(find):
    """needs Secret other-tokens, which nothing makes"""
    pod(find("StatefulSet", "troupe-supervisor"))["volumes"][0]["secret"]["secretName"] = "other-tokens"


def grace_shorter_than_the_drain(find):
    """the grace is not longer than preStop (2 s), drain (600 s)"""
    pod(find("Deployment", "troupe-runner"))["terminationGracePeriodSeconds"] = 30


def budget_of_a_single_pod(find):
    """would keep a node from being drained"""
    find("Deployment", "troupe-registry")["spec"]["replicas"] = 1


def credential_for_agents(find):
    """agents can read the credential of their runner"""
    runner, agents = pod(find("Deployment", "troupe-runner"))["containers"]
    agents["volumeMounts"] = [*agents["volumeMounts"], runner["volumeMounts"][0]]


def volume_for_several_pods(find):
    """another pod may have its volume"""
    find("StatefulSet", "troupe-supervisor")["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"] = [
        "ReadWriteMany"
    ]


def service_with_an_address_for_a_stateful_set(find):
    """troupe-supervisor is no headless Service"""
    find("StatefulSet", "troupe-supervisor")["spec"]["serviceName"] = "troupe-supervisor"


def key_that_is_not_mounted(find):
    """--tls-key names /run/tls/tls.key, where nothing is mounted"""
    volumes = pod(find("Deployment", "troupe-registry"))["volumes"]
    next(volume for volume in volumes if volume["name"] == "tls")["secret"]["items"].pop()


def unchecked_certificate(find):
    """troupe-registry does not look at the certificate of troupe-supervisor"""
    drop_argument(find("Deployment", "troupe-registry"), "--tls-client-ca")


def unknown_token(find):
    """troupe-supervisor does not know the token of troupe-runner"""
    drop_argument(find("StatefulSet", "troupe-supervisor"), "--runner-token-file")


def call_to_missing_service(find):
    """calls https://registry-headless:50051, where no Service is"""
    arguments = pod(find("StatefulSet", "troupe-supervisor"))["containers"][0]["args"]
    arguments[:] = [argument.replace("troupe-registry", "registry") for argument in arguments]


def policy_that_keeps_the_runner_out(find):
    """the policy of troupe-supervisor keeps troupe-runner out"""
    find("NetworkPolicy", "troupe-supervisor")["spec"]["ingress"][0]["from"].pop(0)


def policy_without_names(find):
    """keeps it from resolving names"""
    find("NetworkPolicy", "troupe-runner")["spec"]["egress"].pop(0)


def name_query_to_any_host(find):
    """NetworkPolicy troupe-runner lets out to every address"""
    find("NetworkPolicy", "troupe-runner")["spec"]["egress"][0].pop("to")


def way_out_that_leads_inside(find):
    """NetworkPolicy troupe-runner lets out to 169.254.0.0/16, which is inside"""
    inside = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"]
    outside = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": inside}}], "ports": [{"port": 443}]}
    find("NetworkPolicy", "troupe-runner")["spec"]["egress"].append(outside)


def scratch_without_a_bound(find):
    """the emptyDir scratch may fill its node"""
    volumes = pod(find("Deployment", "troupe-runner"))["volumes"]
    next(volume for volume in volumes if volume["name"] == "scratch")["emptyDir"] = {}


def ingress_without_a_certificate(find):
    """Ingress troupe-console has no certificate for console.example.org"""
    find("Ingress", "troupe-console")["spec"].pop("tls")


def ingress_of_another_host(find):
    """troupe-console does not know the name other.example.org"""
    find("Ingress", "troupe-console")["spec"]["rules"][0]["host"] = "other.example.org"


def ingress_to_another_port(find):
    """leads to troupe-console, where no Service has that port"""
    find("Service", "troupe-console")["spec"]["ports"][0]["name"] = "web"


def policy_that_keeps_browsers_out(find):
    """the policy of troupe-console keeps the ingress controller out"""
    find("NetworkPolicy", "troupe-console")["spec"].pop("ingress")


def policy_that_keeps_the_console_out(find):
    """the policy of troupe-supervisor keeps troupe-console out"""
    find("NetworkPolicy", "troupe-supervisor")["spec"]["ingress"][0]["from"].pop(1)


def console_with_an_unknown_token(find):
    """troupe-supervisor does not know the token of troupe-console"""
    workload = find("Deployment", "troupe-console")
    arguments = pod(workload)["containers"][0]["args"]
    arguments[:] = [argument.replace("operator.token", "other.token") for argument in arguments]


def a2a_port_with_an_unknown_token(find):
    """troupe-supervisor does not know the token of troupe-a2a"""
    drop_argument(find("StatefulSet", "troupe-a2a"), "--supervisor-token-file")


def token_of_a_caller_that_is_not_mounted(find):
    """StatefulSet troupe-a2a: the token of partner is not mounted"""
    volumes = pod(find("StatefulSet", "troupe-a2a"))["volumes"]
    next(volume for volume in volumes if volume["name"] == "config")["projected"]["sources"].pop()


def policy_that_keeps_the_a2a_port_out(find):
    """the policy of troupe-registry keeps troupe-a2a out"""
    find("NetworkPolicy", "troupe-registry")["spec"]["ingress"][0]["from"].pop(2)


def secret_of_the_proxy_that_is_not_mounted(find):
    """--proxy-secret-file names /run/proxy/proxy.token, where nothing is mounted"""
    volumes = pod(find("Deployment", "troupe-console"))["volumes"]
    next(volume for volume in volumes if volume["name"] == "proxy")["secret"]["items"].pop()


def policy_that_keeps_prometheus_out(find):
    """the policy of troupe-registry keeps Prometheus out"""
    find("NetworkPolicy", "troupe-registry")["spec"]["ingress"].pop()


def policy_that_keeps_prometheus_from_runners(find):
    """the policy of troupe-runner keeps Prometheus out"""
    find("NetworkPolicy", "troupe-runner")["spec"].pop("ingress")


def monitor_of_no_pods(find):
    """troupe-runner is not read by Prometheus"""
    find("PodMonitor", "troupe-runner")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] = "runners"


def monitor_of_another_port(find):
    """PodMonitor troupe-supervisor asks for a port metrics, which no container has"""
    find("PodMonitor", "troupe-supervisor")["spec"]["podMetricsEndpoints"][0]["port"] = "metrics"


def monitor_of_the_same_pods(find):
    """troupe-registry is read twice by Prometheus"""
    read = find("PodMonitor", "troupe-registry")["spec"]["selector"]
    find("PodMonitor", "troupe-supervisor")["spec"]["selector"] = read


def pod(workload):
    return workload["spec"]["template"]["spec"]


def drop_argument(workload, flag):
    arguments = pod(workload)["containers"][0]["args"]
    arguments[:] = [argument for argument in arguments if not argument.startswith(f"{flag}=")]


FAULTS = [thing for thing in list(globals().values()) if callable(thing) and thing.__doc__]
