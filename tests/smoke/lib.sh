# shellcheck shell=bash
# Helpers for smoke tests with grpcurl; sourced, see README.md. Needs bash 4.4, grpcurl, awk and sed.

if [[ ${BASH_VERSINFO[0]} -lt 4 || (${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -lt 4) ]]; then
  echo "smoke tests need bash 4.4 or newer; this is $BASH_VERSION" >&2
  exit 2
fi

# The directory in which .ci/install installs grpcurl.
PATH="${TROUPE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tools}/bin:$PATH"

# Settings; a script may change them after sourcing.
SMOKE_GRPCURL=${SMOKE_GRPCURL:-grpcurl}
SMOKE_FLAGS=(-plaintext -max-time 20) # precede the arguments of every call
SMOKE_TOKEN=${SMOKE_TOKEN:-}          # if set, sent with every call as `authorization: Bearer TOKEN`
SMOKE_START_SECONDS=${SMOKE_START_SECONDS:-30}
SMOKE_STOP_SECONDS=${SMOKE_STOP_SECONDS:-15}

# Results of the latest call: its output, its error output, and its exit status.
SMOKE_OUTPUT=
SMOKE_ERROR=
SMOKE_STATUS=0

SMOKE_PASSED=0
SMOKE_FAILED=0
SMOKE_SUMMARISED=
declare -A SMOKE_PIDS=()

# A private directory for logs (NAME.log) and files of the script. It is removed at the end if no check failed.
SMOKE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/troupe-smoke.XXXXXX")

# No process writes to this pipe. Reading from it with a timeout is a pause without a subprocess.
mkfifo "$SMOKE_DIR/never"
exec {SMOKE_NEVER}<>"$SMOKE_DIR/never"

smoke_pause() { # SECONDS
  read -r -t "$1" -u "$SMOKE_NEVER" || :
}

smoke_cleanup() {
  local status=$? name
  trap - EXIT
  # A child that is stopped before it executes its command is still a copy of this script. It must not clean up.
  if [[ $BASHPID != "$$" ]]; then
    exit "$status"
  fi
  # The reader of the output may have ended, as with `| head`. The processes must end anyway.
  trap '' PIPE
  # A failed check may have ended the script before its summary, which is then printed here.
  if [[ -z $SMOKE_SUMMARISED ]]; then
    smoke_summary || status=$((status == 0 ? 1 : status))
  fi
  for name in "${!SMOKE_PIDS[@]}"; do
    smoke_stop "$name" || :
  done
  if ((SMOKE_FAILED == 0 && status == 0)); then
    rm -rf "$SMOKE_DIR"
  else
    echo "logs are in $SMOKE_DIR" >&2
  fi
  exit "$status"
}
trap smoke_cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

# ---- results

pass() { # NAME
  SMOKE_PASSED=$((SMOKE_PASSED + 1))
  printf 'ok      %s\n' "$1"
}

fail() { # NAME [LINE...]
  SMOKE_FAILED=$((SMOKE_FAILED + 1))
  printf 'FAILED  %s\n' "$1"
  shift
  local text
  for text in "$@"; do
    printf '%s\n' "$text" | sed 's/^/        /'
  done
}

# Prints the last line of a smoke test. Succeeds if all checks passed. A run without any check fails.
smoke_summary() {
  SMOKE_SUMMARISED=yes
  printf '%d passed, %d failed\n' "$SMOKE_PASSED" "$SMOKE_FAILED"
  ((SMOKE_FAILED == 0 && SMOKE_PASSED > 0))
}

# ---- processes

# Starts a process in the background. smoke_stop and similar functions use its name.
smoke_launch() { # NAME COMMAND...
  local name=$1
  shift
  "$@" </dev/null >"$SMOKE_DIR/$name.log" 2>&1 {SMOKE_NEVER}<&- &
  SMOKE_PIDS[$name]=$!
}

# Starts a process and waits for its ready file. The command must have the same file name in
# --ready-file: smoke_start up "$SMOKE_DIR/up.json" target/debug/troupe up --ready-file "$SMOKE_DIR/up.json"
smoke_start() { # NAME READY-FILE COMMAND...
  local name=$1 ready=$2 log=$SMOKE_DIR/$1.log deadline pid
  shift 2
  rm -f "$ready"
  smoke_launch "$name" "$@"
  pid=${SMOKE_PIDS[$name]}
  deadline=$((SECONDS + SMOKE_START_SECONDS))
  # A partially written file is not ready, so the closing brace must exist.
  until [[ -s $ready && $(<"$ready") == *"}" ]]; do
    if ! kill -0 "$pid" 2>/dev/null; then
      local status=0
      wait "$pid" || status=$?
      unset "SMOKE_PIDS[$name]"
      fail "$name starts" "it ended with status $status before it was ready; its log ends with:" "$(tail -n 20 "$log")"
      return 1
    fi
    if ((SECONDS >= deadline)); then
      smoke_stop "$name" || :
      fail "$name starts" "no $ready after $SMOKE_START_SECONDS s; its log ends with:" "$(tail -n 20 "$log")"
      return 1
    fi
    smoke_pause 0.05
  done
  pass "$name starts"
}

# Sends SIGTERM to a process, waits, and kills it if it does not stop. Returns the status of the process, or 1 if it was
# killed.
smoke_stop() { # NAME
  local pid=${SMOKE_PIDS[$1]:-} deadline status=0
  if [[ -z $pid ]]; then
    return 0
  fi
  unset "SMOKE_PIDS[$1]"
  kill -TERM "$pid" 2>/dev/null || :
  deadline=$((SECONDS + SMOKE_STOP_SECONDS))
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS >= deadline)); then
      kill -KILL "$pid" 2>/dev/null || :
      wait "$pid" 2>/dev/null || :
      echo "$1 did not stop within $SMOKE_STOP_SECONDS s and was killed" >&2
      return 1
    fi
    smoke_pause 0.05
  done
  wait "$pid" || status=$?
  return "$status"
}

# Checks that a process stops with status 0 after SIGTERM.
expect_stop() { # NAME
  local status=0
  smoke_stop "$1" || status=$?
  if ((status == 0)); then
    pass "$1 stops"
  else
    fail "$1 stops" "status $status; its log ends with:" "$(tail -n 20 "$SMOKE_DIR/$1.log")"
    return 1
  fi
}

# Kills a process with SIGKILL, like a crash.
smoke_kill() { # NAME
  local pid=${SMOKE_PIDS[$1]:?no such process}
  unset "SMOKE_PIDS[$1]"
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || :
}

# ---- JSON, as far as a smoke test needs it

# Prints the first value of a key, without quotes: a number, a boolean or a string without escapes. Returns 1 if the key
# is missing.
json_value() { # KEY < JSON
  sed -nE "s/.*\"$1\"[[:space:]]*:[[:space:]]*(\"([^\"]*)\"|([-0-9.a-zA-Z]+)).*/\\2\\3/p" | awk 'NR == 1 { print; hit = 1 } END { exit !hit }'
}

# Prints the first value of a key in a ready file, in which everything may be in one line.
ready_value() { # READY-FILE KEY
  sed 's/[,{}]/\n/g' "$1" | json_value "$2"
}

# Prints the first value of a key in the output of the latest call: thread=$(field threadId)
field() { # KEY
  json_value "$1" <<<"$SMOKE_OUTPUT"
}

# ---- calls

# Sets SMOKE_CALL_FLAGS to the flags before the arguments of a call.
smoke_call_flags() {
  SMOKE_CALL_FLAGS=("${SMOKE_FLAGS[@]}")
  if [[ -n $SMOKE_TOKEN ]]; then
    SMOKE_CALL_FLAGS+=(-H "authorization: Bearer $SMOKE_TOKEN")
  fi
}

# Calls grpcurl and returns its status. The results are in SMOKE_OUTPUT, SMOKE_ERROR and SMOKE_STATUS.
call() { # GRPCURL-ARGUMENT...
  smoke_call_flags
  SMOKE_STATUS=0
  SMOKE_OUTPUT=$("$SMOKE_GRPCURL" "${SMOKE_CALL_FLAGS[@]}" "$@" 2>"$SMOKE_DIR/stderr") || SMOKE_STATUS=$?
  SMOKE_ERROR=$(<"$SMOKE_DIR/stderr")
  return "$SMOKE_STATUS"
}

# Checks that a stream contains a text before the stream ends or its time is over, ignoring spaces and line breaks. Then
# ends the call. Its output is in SMOKE_OUTPUT.
expect_stream() { # NAME TEXT GRPCURL-ARGUMENT...
  local name=$1 want=${2//[[:space:]]/} pid ended said=no
  shift 2
  smoke_call_flags
  # Emptied here, because the redirection of the call may happen after the first read of the file.
  : >"$SMOKE_DIR/stream"
  "$SMOKE_GRPCURL" "${SMOKE_CALL_FLAGS[@]}" "$@" >>"$SMOKE_DIR/stream" 2>"$SMOKE_DIR/stderr" {SMOKE_NEVER}<&- &
  pid=$!
  while :; do
    # Checked before the output is read, so that the last output of a call is not missed.
    ended=no
    kill -0 "$pid" 2>/dev/null || ended=yes
    if [[ $(tr -d '[:space:]' <"$SMOKE_DIR/stream") == *"$want"* ]]; then
      said=yes
      break
    fi
    if [[ $ended == yes ]]; then
      break
    fi
    smoke_pause 0.05
  done
  kill "$pid" 2>/dev/null || :
  wait "$pid" 2>/dev/null || :
  SMOKE_OUTPUT=$(<"$SMOKE_DIR/stream")
  SMOKE_ERROR=$(<"$SMOKE_DIR/stderr")
  if [[ $said == yes ]]; then
    pass "$name"
  else
    fail "$name" "expected in the stream: $2" "the output was:" "$SMOKE_OUTPUT" "$SMOKE_ERROR"
    return 1
  fi
}

# Checks that a call succeeds. The response is then in SMOKE_OUTPUT, for field and expect_output.
expect_ok() { # NAME GRPCURL-ARGUMENT...
  local name=$1
  shift
  if call "$@"; then
    pass "$name"
  else
    fail "$name" "expected success; grpcurl ended with $SMOKE_STATUS:" "$SMOKE_ERROR"
    return 1
  fi
}

# Checks that the output of the latest call contains a text, ignoring spaces and line breaks:
# expect_output "is done" '"kind": "STATUS_KIND_COMPLETED"'
expect_output() { # NAME TEXT
  local have=${SMOKE_OUTPUT//[[:space:]]/} want=${2//[[:space:]]/}
  if [[ $have == *"$want"* ]]; then
    pass "$1"
  else
    fail "$1" "expected in the output: $2" "the output was:" "$SMOKE_OUTPUT"
    return 1
  fi
}

# Checks that two texts are equal.
expect_equal() { # NAME EXPECTED ACTUAL
  if [[ $2 == "$3" ]]; then
    pass "$1"
  else
    fail "$1" "expected: $2" "actual:   $3"
    return 1
  fi
}

# Checks that a call fails with this code and exactly this message. CODE is the name in the API, optionally with the
# stable reason: NOT_FOUND or NOT_FOUND/TEMPLATE_NOT_FOUND. The message `-` accepts any message.
expect_error() { # NAME CODE[/REASON] MESSAGE GRPCURL-ARGUMENT...
  local name=$1 code=${2%%/*} reason='' message=$3 number actual
  if [[ $2 == */* ]]; then
    reason=${2#*/}
  fi
  shift 3
  if ! number=$(grpc_code_number "$code"); then
    fail "$name" "the test names an unknown code: $code"
    return 1
  fi
  if call "$@"; then
    fail "$name" "expected $code; the call succeeded:" "$SMOKE_OUTPUT"
    return 1
  fi
  # grpcurl ends with 64 + code if the server has responded, and with a lower status if it was not reached.
  if ((SMOKE_STATUS != 64 + number)); then
    fail "$name" "expected $code; grpcurl ended with $SMOKE_STATUS:" "$SMOKE_ERROR"
    return 1
  fi
  actual=$(grpc_message)
  if [[ $message != - && $actual != "$message" ]]; then
    fail "$name" "expected: $message" "actual:   $actual"
    return 1
  fi
  # Without grep -q and without output to /dev/null: grep would end at the first match, and the writer would fail.
  if [[ -n $reason && -z $(grpc_details | grep -aoF -- "$reason") ]]; then
    fail "$name" "expected reason $reason in the details:" "$SMOKE_ERROR"
    return 1
  fi
  pass "$name"
}

grpc_code_number() { # NAME
  local names=(OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED)
  local number
  for number in "${!names[@]}"; do
    if [[ ${names[number]} == "$1" ]]; then
      echo "$number"
      return 0
    fi
  done
  return 1
}

# Prints the message of the latest error: all lines from `  Message: ` up to `  Details:`.
grpc_message() {
  awk '
    !inside && sub(/^  Message: ?/, "") { inside = 1; text = $0; next }
    inside && /^  Details:$/ { exit }
    inside { text = text "\n" $0 }
    END { if (inside) print text }
  ' <<<"$SMOKE_ERROR"
}

# Prints the details of the latest error: as grpcurl prints them, and decoded if grpcurl does not know the type.
grpc_details() {
  sed '1,/^  Details:$/d' <<<"$SMOKE_ERROR"
  { sed -nE 's/.*"@value": "([^"]*)".*/\1/p' <<<"$SMOKE_ERROR"; } | while IFS= read -r value; do
    base64 -d <<<"$value" || :
    echo
  done
}

# ---- several supervisors

# `troupe up` of TROUPE_BIN starts TROUPE_MEMBERS supervisors behind one address.
if [[ -n ${TROUPE_MEMBERS:-} ]]; then
  smoke_start members "$SMOKE_DIR/members.json" setpriv --pdeathsig=TERM tests/smoke/members serve \
    "$SMOKE_DIR/bin" "${TROUPE_BIN:-${CARGO_TARGET_DIR:-target}/debug}" "$TROUPE_MEMBERS" "$SMOKE_DIR/members.json"
  TROUPE_BIN=$SMOKE_DIR/bin
fi
