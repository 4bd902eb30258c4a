{{/* How all objects of a release are called; short enough for the labels that a StatefulSet makes of it. */}}
{{- define "kvlens.name" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- default $name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* By which pods are found: (list ROOT PART). */}}
{{- define "kvlens.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* Of every object: (list ROOT PART), PART may be empty. */}}
{{- define "kvlens.labels" -}}
{{- $root := index . 0 -}}
{{ include "kvlens.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kvlens.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-connector" (include "kvlens.name" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Namespaces of config.discovery.kubernetes, as a JSON list: the release's own where an entry names none. */}}
{{- define "kvlens.namespaces" -}}
{{- $found := list -}}
{{- range dig "discovery" "kubernetes" list .Values.config -}}
{{- $found = concat $found (default (list $.Release.Namespace) .namespaces) -}}
{{- end -}}
{{- $found | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* Roles may stand in namespaces that other releases read, too. */}}
{{- define "kvlens.role" -}}
{{ .Release.Namespace }}-{{ include "kvlens.name" . }}-connector
{{- end -}}

{{/* Not empty unless workers write no tables. */}}
{{- define "kvlens.tables" -}}
{{ dig "clickhouse" "url" "of its own" .Values.config }}
{{- end -}}
