"""As much of a kubelet as it takes to run our pods for real, on one machine and without a container engine.

It takes rendered manifests and does to the programs what a node would do: a root file system of the image's files that
cannot be written, volumes laid out as the kubelet lays them out, the command, arguments, environment, user and groups
of the pod and no rights beyond, gRPC probes with their thresholds, preStop, SIGTERM, and SIGKILL when the
grace is over. Whatever a pod asks for and this does not know is an error, so nothing is passed over in silence.

All pods share one network namespace with nothing but loopback in it; Services are names for it.
"""

from .node import Node
from .pod import Failed, Pod
from .sandbox import enter, hindrance

__all__ = ["Failed", "Node", "Pod", "enter", "hindrance"]
