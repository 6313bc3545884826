#!/usr/bin/env bash
# Tests a deployed pair with grpcurl: health, authentication, the roles, a session, an agent from its spawn to its end,
# and the stream of events. It deletes everything that it creates. Requirements: grpcurl, and for a cluster kubectl.
#
#   deploy/smoke.sh [--namespace NAMESPACE] [--release RELEASE] [--secret SECRET]
#       Tests a pair on kubectl's current cluster, through port-forward, with the key operator.token of the Secret, and
#       for the registry with registry.token if the Secret contains it.
#   SMOKE_TOKEN=TOKEN [SMOKE_REGISTRY_TOKEN=TOKEN] deploy/smoke.sh --registry HOST:PORT --supervisor HOST:PORT
#       Tests any other pair, with the operator's token from the environment, and the registry's if it differs.
#
#   --agent TYPE    the role that is spawned (default: worker)
#   --ca FILE       the services use TLS with certificates of this authority, in PEM
#   --no-runner     no runner is attached: the agent must wait instead of completing
set -euo pipefail

namespace=troupe release=troupe secret=troupe-tokens registry='' supervisor='' agent=worker runner=yes ca=''
while (($# > 0)); do
  case $1 in
    --namespace | --release | --secret | --registry | --supervisor | --agent)
      declare "${1#--}=${2:?$1 needs a value}"
      shift 2
      ;;
    --ca)
      ca=$(realpath "${2:?$1 needs a value}")
      shift 2
      ;;
    --no-runner) runner=no && shift ;;
    *) echo "unknown: $1; see the first lines of $0" >&2 && exit 2 ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/smoke/lib.sh
source tests/smoke/lib.sh
if [[ -n $ca ]]; then
  SMOKE_FLAGS=(-cacert "$ca" -max-time 20)
fi
REGISTRY=troupe.registry.v1.AgentRegistryService
SUPERVISOR=troupe.supervisor.v1.AgentSupervisorService

# Forwards a local port, which kubectl selects, to a service. Stores the address in FORWARDED.
forward() { # SERVICE PORT
  smoke_launch "forward-$1" kubectl --namespace "$namespace" port-forward "service/$1" ":$2"
  local deadline=$((SECONDS + SMOKE_START_SECONDS))
  until FORWARDED=$(sed -n 's/^Forwarding from \(127\.0\.0\.1:[0-9]*\) .*/\1/p' "$SMOKE_DIR/forward-$1.log") && [[ -n $FORWARDED ]]; do
    if ((SECONDS >= deadline)) || ! kill -0 "${SMOKE_PIDS[forward-$1]}" 2>/dev/null; then
      fail "port-forward to $1" "$(<"$SMOKE_DIR/forward-$1.log")"
      exit 1
    fi
    smoke_pause 0.1
  done
}

if [[ -z $registry && -z $supervisor ]]; then
  # The prefix of the chart's object names.
  name=$release
  [[ $release == *troupe* ]] || name=$release-troupe
  name=${name:0:40}
  key() { # KEY: what the Secret has there
    kubectl --namespace "$namespace" get secret "$secret" --output "go-template={{with index .data \"$1\"}}{{base64decode .}}{{end}}"
  }
  SMOKE_TOKEN=$(key operator.token)
  SMOKE_REGISTRY_TOKEN=$(key registry.token)
  forward "${name%-}-registry" 50051
  registry=$FORWARDED
  forward "${name%-}-supervisor" 50052
  supervisor=$FORWARDED
elif [[ -z $registry || -z $supervisor || -z $SMOKE_TOKEN ]]; then
  echo "--registry, --supervisor and SMOKE_TOKEN go together" >&2
  exit 2
fi

token=$SMOKE_TOKEN
registry_token=${SMOKE_REGISTRY_TOKEN:-$token}
for service in "$registry $REGISTRY" "$supervisor $SUPERVISOR"; do
  read -r address name <<<"$service"
  SMOKE_TOKEN='' expect_ok "${name##*.} is healthy" -d "{\"service\": \"$name\"}" "$address" grpc.health.v1.Health/Check
  expect_output "and serves" '"status": "SERVING"'
done
SMOKE_TOKEN='' expect_error "the registry lets no stranger in" UNAUTHENTICATED/UNAUTHENTICATED - "$registry" "$REGISTRY/ListAgents"
SMOKE_TOKEN='' expect_error "nor does the supervisor" UNAUTHENTICATED/UNAUTHENTICATED - "$supervisor" "$SUPERVISOR/ListSessions"

SMOKE_TOKEN=$registry_token
expect_ok "roles are listed" "$registry" "$REGISTRY/ListAgents"
expect_output "with the one to spawn" "\"agentType\": \"$agent\""
SMOKE_TOKEN=$token
expect_ok "a session opens" "$supervisor" "$SUPERVISOR/CreateSession"
session=$(field sessionId)
expect_ok "an agent is spawned" -d "{\"session_id\": \"$session\", \"agent_type\": \"$agent\", \"message\": \"Say hello.\"}" \
  "$supervisor" "$SUPERVISOR/SpawnAgent" || :
thread=$(field threadId)
if [[ $runner == yes ]]; then
  expect_ok "it is waited for" -d "{\"thread_ids\": [\"$thread\"], \"timeout\": \"15s\"}" "$supervisor" "$SUPERVISOR/WaitAgents" || :
  expect_output "and completes" '"kind": "STATUS_KIND_COMPLETED"' || :
else
  expect_output "it waits for a runner" '"kind": "CONDITION_KIND_NO_RUNNER"' || :
fi
expect_stream "the events tell of it" '"threadSpawned"' -d "{\"session_id\": \"$session\", \"after_sequence\": 0}" \
  "$supervisor" "$SUPERVISOR/WatchThreads" || :
expect_ok "the session is closed" -d "{\"session_id\": \"$session\", \"wait\": true}" "$supervisor" "$SUPERVISOR/CloseSession"
expect_ok "and deleted" -d "{\"session_id\": \"$session\"}" "$supervisor" "$SUPERVISOR/DeleteSession"

smoke_summary
