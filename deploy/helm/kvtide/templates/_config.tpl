{{/* The agent's settings: what the chart knows, and over it what the values say; given: root, and config. A sidecar
has the engine's pod's service account, so that it asks nothing of the API. */}}
{{- define "kvtide.config" -}}
{{- $config := .config -}}
{{- with .root -}}
{{- $link := dict "socket" (printf "%s/agent.sock" (include "kvtide.socketFolder" .)) "allow_gids" (list (int64 .Values.privileges.runAsGroup)) -}}
{{- $http := dict "listen" (printf "%s:%d" .Values.http.address (int64 .Values.http.port)) -}}
{{- if .Values.http.web.secret -}}
{{- $_ := set $http "web_config_file" (printf "%s/web-config.yaml" (include "kvtide.webFolder" .)) -}}
{{- end -}}
{{- $own := dict "link" $link "http" $http "recorder" (dict "directory" (include "kvtide.stateFolder" .)) -}}
{{- if .Values.policy -}}
{{- $_ := set $own "policy" (printf "%s/policy.yaml" (include "kvtide.configFolder" .)) -}}
{{- end -}}
{{- if and (or $config.balancer $config.supervisor) (include "kvtide.apis" .) -}}
{{- $_ := set $own "balancer" (dict "kubernetes" (dict "namespace" (include "kvtide.enginesNamespace" .))) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own (deepCopy $config)) -}}
{{- end -}}
{{- end -}}

{{- define "kvtide.configData" -}}
agent.yaml: |
{{ include "kvtide.config" . | indent 2 }}
{{- if .root.Values.policy }}
policy.yaml: |
{{ toYaml .root.Values.policy | indent 2 }}
{{- end }}
{{- end -}}
