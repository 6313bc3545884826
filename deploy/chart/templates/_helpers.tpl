{{- /* The prefix of every name: "troupe" for a release called troupe. Names may have 63 characters. The name of a
       StatefulSet may have 11 less, because a label of its pods contains the name and a hash. */}}
{{- define "troupe.name" -}}
{{- $name := ternary .Release.Name (printf "%s-troupe" .Release.Name) (contains "troupe" .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* The labels that select the pods of a component. They contain no version, which would restart the pods without
       need. They must never change, because selectors are immutable. toYaml quotes a release name such as "true". Takes
       a dict of root, component, and pool for one of the runners' pools. */}}
{{- define "troupe.selector" -}}
app.kubernetes.io/name: troupe
app.kubernetes.io/instance: {{ toYaml .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
troupe.dev/pool: {{ quote . }}
{{- end }}
{{- end }}

{{- define "troupe.labels" -}}
{{ include "troupe.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/part-of: troupe
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The image of a component: its own image, or the common one. Takes a dict of root and component. */}}
{{- define "troupe.image" -}}
{{- $digest := "" }}
{{- with .root.Values.image.digest }}{{ $digest = printf "@%s" . }}{{ end -}}
{{- $common := printf "%s:%s%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) $digest -}}
{{ (index .root.Values .component | default dict).image | default $common | quote }}
{{- end }}

{{- /* The type and the annotations of a component's Service. */}}
{{- define "troupe.serviceType" -}}
{{- with .serviceType }}
type: {{ . }}
{{- end }}
{{- end }}
{{- define "troupe.serviceAnnotations" -}}
{{- with .serviceAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The ServiceAccount of a component: the account in the values; or an account of the chart, if the component
       authenticates with its token; or none. The console and the A2A port always send a token of a Secret. Takes a dict
       of root and component. */}}
{{- define "troupe.account" -}}
{{- $named := (index .root.Values .component | default dict).serviceAccountName -}}
{{- if $named }}{{ $named }}{{ else if and .root.Values.identity.serviceAccountTokens.enabled (not (has .component (list "console" "a2a"))) }}{{ include "troupe.name" .root }}-{{ .component }}{{ end }}
{{- end }}

{{- /* The token of its ServiceAccount with which a component authenticates to another one. The directory contains
       nothing else. Programs that bubblewrap confines cannot see it. */}}
{{- define "troupe.identity" -}}
{{- $tokens := .Values.identity.serviceAccountTokens -}}
- name: identity
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          audience: {{ quote $tokens.audience }}
          expirationSeconds: {{ $tokens.expirationSeconds }}
{{- end }}

{{- /* The token for requesting the keys of such tokens from the API server, and the server's certificate authority.
       Every account may request the keys, and the account of a service has no other permissions. */}}
{{- define "troupe.keys" -}}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: {{ .Values.identity.serviceAccountTokens.expirationSeconds }}
      - configMap:
          # Kubernetes creates it in each namespace.
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
{{- end }}

{{- /* The flags by which a service accepts the ServiceAccount token of a component. Takes a dict of root, the
       component, and its role. */}}
{{- define "troupe.knows" -}}
{{- $tokens := .root.Values.identity.serviceAccountTokens -}}
- {{ printf "--jwt-issuer=%s" $tokens.issuer | quote }}
- {{ printf "--jwt-audience=%s" $tokens.audience | quote }}
- --jwt-keys=https://kubernetes.default.svc/openid/v1/jwks
- --jwt-ca=/run/keys/ca.crt
- --jwt-keys-token=/run/keys/token
- --jwt-role=sub:system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "troupe.account" . }}={{ .role }}
{{- end }}

{{- /* The common settings of all pods, and the placement of a component's pods. Pods call the API server only for keys,
       with a token on a separate volume, or to create thread pods. Takes a dict of root, component, bare for a pod that
       is not the component's own, and an account other than the component's. */}}
{{- define "troupe.pod" -}}
{{- $own := index .root.Values .component | default dict -}}
automountServiceAccountToken: false
{{- with .account | default (include "troupe.account" .) }}
serviceAccountName: {{ quote . }}
{{- end }}
# Otherwise the Services of this release would set TROUPE_* variables, which the programs read as settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- if not .root.Values.randomUserIds }}
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  {{- end }}
  # Otherwise the kubelet changes the owner of every file in the volume at each start.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with or $own.nodeSelector .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with or $own.tolerations .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with $own.runtimeClassName }}
runtimeClassName: {{ quote . }}
{{- end }}
{{- if eq (get $own "hostUsers" | toString) "false" }}
hostUsers: false
{{- end }}
{{- if not .bare }}
{{- with $own.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The common settings of all containers: the restricted profile, and a read-only root file system. Takes a dict of
       root and component, a user other than the pod's, and bare for a container without the component's variables. */}}
{{- define "troupe.container" -}}
{{- $own := index .root.Values .component | default dict -}}
securityContext:
  {{- with .user }}
  runAsUser: {{ . }}
  {{- end }}
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  {{- with get $own "procMount" }}
  procMount: {{ . }}
  {{- end }}
{{- if not .bare }}
{{- with $own.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The labels and annotations of a component's pods. Takes a dict of root, component, and annotations of the chart. */}}
{{- define "troupe.podMetadata" -}}
{{- $own := index .root.Values .component -}}
labels:
  {{- include "troupe.selector" . | nindent 2 }}
  {{- with $own.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) ($own.podAnnotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Whether a component has several pods, or may have. Empty: no. */}}
{{- define "troupe.several" -}}
{{- $values := index .root.Values .component }}
{{- if or (gt (int $values.replicas) 1) (get $values "autoscaled") }}yes{{ end }}
{{- end }}

{{- /* The disruption budget of a workload with several pods. With one replica, a budget would block the draining of its
       node forever. Takes a dict of root, component, pool and the workload's name. */}}
{{- define "troupe.budget" }}
{{- if include "troupe.several" . }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "troupe.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready does not block the draining of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "troupe.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- /* Spreads several pods of a component over the nodes if possible, unless the values contain other constraints.
       Takes a dict of root and component. */}}
{{- define "troupe.spread" -}}
{{- $constraints := (index .root.Values .component).topologySpreadConstraints }}
{{- if $constraints -}}
topologySpreadConstraints: {{- toYaml $constraints | nindent 2 }}
{{- else if include "troupe.several" . -}}
topologySpreadConstraints:
  - topologyKey: kubernetes.io/hostname
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "troupe.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* A Secret as files that the kubelet updates and the pod's group may read. Contains only the keys that the pod
       needs. Takes a dict of name, secret and keys. */}}
{{- define "troupe.secret" -}}
- name: {{ .name }}
  secret:
    secretName: {{ quote .secret }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}

{{- /* The key of the Secret with the token that the registry accepts. */}}
{{- define "troupe.registryToken" -}}
{{ ternary "registry.token" "operator.token" .Values.tokens.registryToken }}
{{- end }}

{{- /* The scheme of the services' URLs, and the protocol of their ports. */}}
{{- define "troupe.scheme" -}}
{{ ternary "https" "http" (ne .Values.tls.registrySecret "") }}
{{- end }}
{{- define "troupe.protocol" -}}
{{ ternary "tls" "kubernetes.io/h2c" (ne .Values.tls.registrySecret "") }}
{{- end }}

{{- /* The admin port of each component, for health and metrics. */}}
{{- define "troupe.registryAdmin" -}}9051{{- end }}
{{- define "troupe.supervisorAdmin" -}}9052{{- end }}
{{- define "troupe.runnerAdmin" -}}9053{{- end }}
{{- define "troupe.a2aAdmin" -}}9054{{- end }}

{{- /* Whether any pool has runners. Empty: no. */}}
{{- define "troupe.runners" -}}
{{- $runners := .Values.runner.replicas }}
{{- range .Values.runner.pools }}
{{- $runners = or $runners (get . "replicas") }}
{{- end }}
{{- if $runners }}yes{{ end }}
{{- end }}

{{- /* The components with metrics on an admin port: all that have pods. */}}
{{- define "troupe.measured" -}}
registry supervisor{{ if include "troupe.runners" . }} runner{{ end }}{{ if .Values.a2a.enabled }} a2a{{ end }}
{{- end }}

{{- /* The probes. They use the admin port, because the kubelet's probes do not support TLS. A supervisor is alive while
       it opens its log, however long that takes, and ready after that. Takes a dict of service and port; an empty
       service means the whole program. */}}
{{- define "troupe.probes" -}}
startupProbe:
  grpc: {port: {{ .port }}, service: liveness}
  periodSeconds: 1
  failureThreshold: 30
readinessProbe:
  grpc: {port: {{ .port }}{{ with .service }}, service: {{ . }}{{ end }}}
  periodSeconds: 5
  failureThreshold: 2
livenessProbe: {{- include "troupe.isAlive" .port | nindent 2 }}
{{- end }}
{{- define "troupe.isAlive" -}}
grpc: {port: {{ . }}, service: liveness}
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 6
{{- end }}

{{- /* Probes a health service of the runner every second. Takes a dict of root and service. */}}
{{- define "troupe.everySecond" -}}
grpc: {port: {{ include "troupe.runnerAdmin" .root }}, service: {{ .service }}}
periodSeconds: 1
{{- end }}

{{- /* The preStop delay of a service with clients. */}}
{{- define "troupe.leave" -}}
lifecycle:
  preStop:
    # The listener closes on SIGTERM. Before that, all clients should have learned that this pod terminates.
    sleep: {seconds: 5}
{{- end }}

{{- /* The preStop delay of a container that may be stopped immediately after its start. */}}
{{- define "troupe.begin" -}}
lifecycle:
  preStop:
    # The first process of a container ignores signals without a handler. Before it has one, SIGTERM is lost
    # and the container runs until the end of the grace period.
    sleep: {seconds: 2}
{{- end }}

{{- /* The sum of preStop (5 s), the services' own deadline for draining (10 s), and slack. */}}
{{- define "troupe.grace" -}}
terminationGracePeriodSeconds: 30
{{- end }}

{{- /* The database of the log, for the supervisor and for work on its data. */}}
{{- define "troupe.storeEnv" -}}
{{- with .Values.supervisor.postgres }}
{{- if .secret -}}
- name: POSTGRES_URL
  valueFrom: {secretKeyRef: {name: {{ quote .secret }}, key: {{ .urlKey }}}}
- {name: TROUPE_STORE, value: {{ printf "$(POSTGRES_URL)%s" (ternary "?sslrootcert=/run/postgres/ca.crt" "" (ne .caSecret "")) | quote }}}
{{- if .requireStandby }}
- {name: TROUPE_REQUIRE_STANDBY, value: "true"}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Volumes and mounts that the supervisor shares with its maintenance Job. */}}
{{- define "troupe.storeVolumes" -}}
{{- with .Values.supervisor.postgres.caSecret -}}
{{ include "troupe.secret" (dict "name" "postgres" "secret" . "keys" (list "ca.crt")) }}
{{ end }}
{{- if .Values.supervisor.backups.enabled -}}
- name: backups
  persistentVolumeClaim: {claimName: {{ .Values.supervisor.backups.existingClaim | default (printf "%s-backups" (include "troupe.name" .)) }}}
{{ end }}
{{- with .Values.supervisor.volumes }}
{{- toYaml . }}
{{- end }}
{{- end }}
{{- define "troupe.storeMounts" -}}
{{- if .Values.supervisor.postgres.caSecret -}}
- {name: postgres, mountPath: /run/postgres, readOnly: true}
{{ end }}
{{- if .Values.supervisor.backups.enabled -}}
- {name: backups, mountPath: /backups}
{{ end }}
{{- with .Values.supervisor.volumeMounts }}
{{- toYaml . }}
{{- end }}
{{- end }}
