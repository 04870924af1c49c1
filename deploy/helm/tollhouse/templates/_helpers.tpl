{{- define "tollhouse.name" -}}
{{- .Values.fullnameOverride | default (printf "%s-%s" .Release.Name (.Values.nameOverride | default .Chart.Name)) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tollhouse.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tollhouse.labels" -}}
{{ include "tollhouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The configuration file: what the values say, and the metrics. */}}
{{- define "tollhouse.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.metrics.enabled -}}{{- $_ := set $config "metrics" (dict "public" true) -}}{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* What cannot work is refused before anything is changed in the cluster. */}}
{{- define "tollhouse.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is empty: build the image from the repository's Dockerfile, push it to a registry of your own, and name it" -}}
{{- end -}}
{{- range list "listen" "admin" "data" -}}
{{- if hasKey $.Values.config . -}}
{{- fail (printf "config.%s is set by the chart: take it out" .) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not (hasKey .Values.config "store")) -}}
{{- fail "replicas is more than 1, and config.store names no Postgres: processes that share accounts share a database" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (or (hasPrefix "sqlite:" (.Values.config.store | default "")) (hasPrefix "memory:" (.Values.config.store | default ""))) -}}
{{- fail "replicas is more than 1, and config.store belongs to one process: use Postgres" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) .Values.persistence.enabled -}}
{{- fail "replicas is more than 1, and persistence is one volume of one pod: leave it out, as Postgres keeps everything" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.host is empty" -}}
{{- end -}}
{{- end -}}
