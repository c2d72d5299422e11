{{/* The agent's container, of the DaemonSet and of a sidecar alike; given: root, user, visibleDevices, and whether it is
the DaemonSet's own. */}}
{{- define "kvtide.container" -}}
{{- $values := .root.Values -}}
name: kvtide
image: {{ include "kvtide.image" (dict "image" $values.image "version" .root.Chart.AppVersion) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: [agent, --config, {{ include "kvtide.configFolder" . }}/agent.yaml]
env:
  - {name: KVTIDE_CONTROL, value: {{ include "kvtide.controlFolder" . }}/control.sock}
  - {name: KVTIDE_URL, value: "{{ ternary "https" "http" $values.http.web.tls }}://127.0.0.1:{{ $values.http.port }}"}
  - name: KVTIDE_NODE
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- if $values.nvidia.enabled }}
  - {name: NVIDIA_VISIBLE_DEVICES, value: {{ .visibleDevices | quote }}}
  - {name: NVIDIA_DRIVER_CAPABILITIES, value: {{ $values.nvidia.driverCapabilities | quote }}}
  {{- end }}
  {{- with $values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: kvtide, containerPort: {{ $values.http.port }}}
securityContext:
  {{- include "kvtide.security" (dict "user" .user "group" $values.privileges.runAsGroup "capabilities" (ternary $values.privileges.capabilities list .own)) | nindent 2 }}
{{- include "kvtide.probes" .root }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
volumeMounts:
  - {name: kvtide-socket, mountPath: {{ include "kvtide.socketFolder" . }}}
  - {name: kvtide-control, mountPath: {{ include "kvtide.controlFolder" . }}}
  - {name: kvtide-config, mountPath: {{ include "kvtide.configFolder" . }}, readOnly: true}
  - {name: kvtide-tmp, mountPath: /tmp}
  - name: kvtide-state
    mountPath: {{ include "kvtide.stateFolder" . }}
    {{- if and .own (eq $values.state.type "persistentVolumeClaim") }}
    subPathExpr: $(KVTIDE_NODE)
    {{- end }}
  {{- if $values.http.web.secret }}
  - {name: kvtide-web, mountPath: {{ include "kvtide.webFolder" . }}, readOnly: true}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "kvtide.security" -}}
runAsUser: {{ int64 .user }}
runAsGroup: {{ int64 .group }}
runAsNonRoot: {{ ne (int64 .user) 0 }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with .capabilities }}
  add: {{ toJson . }}
  {{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The agent listens last: an open port says that it is up, where who asks would have to show who it is. */}}
{{- define "kvtide.probes" -}}
{{- $http := .Values.http -}}
{{- $scheme := ternary "HTTPS" "HTTP" $http.web.tls }}
{{- range $probe, $path := dict "livenessProbe" "/-/healthy" "startupProbe" "/-/healthy" "readinessProbe" "/-/ready" }}
{{ $probe }}:
  {{- if $http.web.authenticated }}
  tcpSocket: {port: kvtide}
  {{- else }}
  httpGet: {path: {{ $path }}, port: kvtide, scheme: {{ $scheme }}}
  {{- end }}
  periodSeconds: {{ ternary 1 $.Values.probes.periodSeconds (eq $probe "startupProbe") }}
  timeoutSeconds: {{ $.Values.probes.timeoutSeconds }}
  failureThreshold: {{ ternary 60 $.Values.probes.failureThreshold (eq $probe "startupProbe") }}
{{- end }}
{{- end -}}

{{/* The volumes that both ways have in common; given: root, and the mode of the secret's files. */}}
{{- define "kvtide.volumes" -}}
- {name: kvtide-control, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: kvtide-tmp, emptyDir: {sizeLimit: 1Gi}}
{{- if .root.Values.http.web.secret }}
- {name: kvtide-web, secret: {secretName: {{ .root.Values.http.web.secret }}, defaultMode: {{ .mode }}}}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
