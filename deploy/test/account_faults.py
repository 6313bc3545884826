"""Faults of ServiceAccounts and their tokens that a schema does not detect. As in faults.py, each is planted into a
render in which semantics.py must find it.
"""

from faults import drop_argument, pod


def unknown_account(find):
    """troupe-supervisor does not know the account of troupe-runner"""
    pod(find("Deployment", "troupe-runner"))["serviceAccountName"] = "other"


def account_of_another_kind(find):
    """troupe-registry does not know the account of troupe-supervisor"""
    arguments = pod(find("Deployment", "troupe-registry"))["containers"][0]["args"]
    arguments[:] = [argument.replace("=service", "=admin") for argument in arguments]


def token_for_another_audience(find):
    """troupe-registry does not know the account of troupe-supervisor"""
    (source,) = volume(find("StatefulSet", "troupe-supervisor"), "identity")["sources"]
    source["serviceAccountToken"]["audience"] = "other"


def account_of_two(find):
    """several are known by the ServiceAccount troupe-supervisor"""
    pod(find("Deployment", "troupe-runner"))["serviceAccountName"] = "troupe-supervisor"


def account_for_everybody(find):
    """ServiceAccount troupe-supervisor gives its token to every pod"""
    find("ServiceAccount", "troupe-supervisor").pop("automountServiceAccountToken")


def token_for_the_api_server_without_a_use(find):
    """has a token for the API server, and asks it for no keys"""
    drop_argument(find("Deployment", "troupe-registry"), "--jwt-keys-token")


def authority_that_is_not_mounted(find):
    """--jwt-ca names /run/keys/ca.crt, where nothing is mounted"""
    volume(find("Deployment", "troupe-registry"), "keys")["sources"].pop()


def policy_without_the_api_server(find):
    """the policy of troupe-registry keeps it from the keys of the API server"""
    find("NetworkPolicy", "troupe-registry")["spec"]["egress"].pop()


def volume(workload, name):
    return next(volume for volume in pod(workload)["volumes"] if volume["name"] == name)["projected"]


FAULTS = [thing for thing in list(globals().values()) if callable(thing) and thing.__doc__]
