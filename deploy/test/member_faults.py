"""Faults of several supervisors over one database, planted into values/several-supervisors.yaml as in faults.py."""

from faults import pod


def supervisors(find):
    return find("Deployment", "troupe-supervisor")


def environment(find):
    return pod(supervisors(find))["containers"][0]["env"]


def log_in_sqlite(find):
    """has its log in SQLite and is no StatefulSet"""
    environment(find)[:] = [variable for variable in environment(find) if variable["name"] != "TROUPE_STORE"]


def name_that_all_pods_have(find):
    """TROUPE_MEMBER_NAME is None and not metadata.name"""
    for variable in environment(find):
        if variable["name"] == "TROUPE_MEMBER_NAME":
            variable.pop("valueFrom")
            variable["value"] = "supervisor"


def address_of_the_service(find):
    """the others do not reach it at 'http://troupe-supervisor:50052'"""
    for variable in environment(find):
        if variable["name"] == "TROUPE_CLUSTER_ADDRESS":
            variable["value"] = "http://troupe-supervisor:50052"


def address_before_its_part(find):
    """POD_IP is defined after its use"""
    environment(find).reverse()


def update_with_a_gap(find):
    """an update stops a supervisor before another is ready"""
    supervisors(find)["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = 1


def node_with_all_pods(find):
    """one node may have all of its pods"""
    pod(supervisors(find)).pop("topologySpreadConstraints")


def data_directory_for_all(find):
    """its pods share a data directory"""
    for volume in pod(supervisors(find))["volumes"]:
        if volume["name"] == "data":
            volume.pop("emptyDir")
            volume["persistentVolumeClaim"] = {"claimName": "data"}


def supervisors_without_a_budget(find):
    """Deployment troupe-supervisor has several pods and no budget"""
    find("PodDisruptionBudget", "troupe-supervisor")["spec"]["selector"]["matchLabels"] = {"app": "supervisor"}


def policy_that_lets_no_supervisor_in(find):
    """the policy of troupe-supervisor keeps its pods from being called by each other"""
    for rule in find("NetworkPolicy", "troupe-supervisor")["spec"]["ingress"]:
        rule["from"] = [peer for peer in rule["from"] if not is_supervisor(peer)]


def policy_that_lets_no_supervisor_out(find):
    """the policy of troupe-supervisor keeps its pods from calling each other"""
    rules = find("NetworkPolicy", "troupe-supervisor")["spec"]["egress"]
    rules[:] = [rule for rule in rules if not any(map(is_supervisor, rule["to"]))]


def is_supervisor(peer):
    labels = peer.get("podSelector", {}).get("matchLabels", {})
    return labels.get("app.kubernetes.io/component") == "supervisor"


FAULTS = [thing for thing in list(globals().values()) if callable(thing) and thing.__doc__]
