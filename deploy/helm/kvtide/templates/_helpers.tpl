{{/* The names of objects, and the labels that they bear. */}}
{{- define "kvtide.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kvtide.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "kvtide.name" . -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $whole | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kvtide.selector" -}}
app.kubernetes.io/name: {{ include "kvtide.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kvtide.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "kvtide.selector" . }}
{{- end -}}

{{- define "kvtide.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kvtide.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kvtide.enginesNamespace" -}}
{{- default .Release.Namespace .Values.engines.namespace -}}
{{- end -}}

{{/* An image's name; given: the image's values, and the chart's version. */}}
{{- define "kvtide.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .version .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Where things are in the containers. */}}
{{- define "kvtide.socketFolder" -}}/run/kvtide{{- end -}}
{{- define "kvtide.controlFolder" -}}/run/kvtide-control{{- end -}}
{{- define "kvtide.stateFolder" -}}/var/lib/kvtide{{- end -}}
{{- define "kvtide.configFolder" -}}/etc/kvtide{{- end -}}
{{- define "kvtide.webFolder" -}}/etc/kvtide-web{{- end -}}
{{- define "kvtide.hooksFolder" -}}/opt/kvtide-hooks{{- end -}}

{{/* Which parts of Kubernetes' API the settings need, as words. */}}
{{- define "kvtide.apis" -}}
{{- $balancer := default dict .Values.config.balancer -}}
{{- $kubernetes := default dict $balancer.kubernetes -}}
{{- if eq (default "none" $balancer.coordinator) "kubernetes" }} leases{{ end -}}
{{- if $kubernetes.disruption_budget }} budgets{{ end -}}
{{- if $kubernetes.readiness_gate }} conditions{{ end -}}
{{- range (default dict .Values.config.supervisor).engines -}}
{{- if eq (default "" .by) "kubernetes" }} evictions{{ end -}}
{{- end -}}
{{- end -}}
