{{/*
What all pods have in common. Each takes a dict:
  root      the chart's context
  values    those of the part, such as .Values.worker
  sections  of secrets.files that the part uses
  config    the ConfigMap with kvlens.toml
  stops     seconds that the settings give to a stop, if any
*/}}

{{/* Annotations of a pod template. Connectors read [[replicas]] again by themselves, others do not need them. */}}
{{- define "kvlens.pod.annotations" -}}
checksum/config: {{ omit .root.Values.config "replicas" | toJson | sha256sum }}
checksum/secrets: {{ include "kvlens.secrets.checksum" (list .root .sections .values) }}
{{- with merge (dict) .values.podAnnotations .root.Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Fields of a pod's spec, all but its containers. */}}
{{- define "kvlens.pod.spec" -}}
enableServiceLinks: false
{{- with .stops }}
terminationGracePeriodSeconds: {{ max 30 (add 10 (ceil .)) }} # what Kubernetes itself gives, at least
{{- end }}
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp # compiled code is copied there, and workers have their scratch space in it
    emptyDir: {}
  - name: config
    configMap: {name: {{ .config }}}
  {{- with include "kvlens.secrets.sources" (list .root .sections) }}
  - name: secrets
    projected:
      defaultMode: 0440
      sources: {{- . | trim | nindent 8 }}
  {{- end }}
  {{- with concat .root.Values.volumes .values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Fields of a container, all but name, args, env, ports and probes. */}}
{{- define "kvlens.container" -}}
{{- $image := .root.Values.image -}}
image: {{ $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ default .root.Chart.AppVersion $image.tag }}{{ end }}
imagePullPolicy: {{ $image.pullPolicy }}
securityContext: {{- toYaml .root.Values.securityContext | nindent 2 }}
resources: {{- toYaml .values.resources | nindent 2 }}
{{- with concat .root.Values.envFrom .values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: config, mountPath: /etc/kvlens/config, readOnly: true}
  {{- if include "kvlens.secrets.sources" (list .root .sections) }}
  - {name: secrets, mountPath: /etc/kvlens/secrets, readOnly: true}
  {{- end }}
  {{- with concat .root.Values.volumeMounts .values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Environment of a container; what the chart sets for one part comes before it. */}}
{{- define "kvlens.env" -}}
- {name: KVLENS_CONFIG, value: /etc/kvlens/config/kvlens.toml}
{{- include "kvlens.secrets.env" (list .root .sections) }}
{{- with concat .root.Values.env .values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Probes of connectors, workers and indexes, given the name of a port. Their event loops may pause for a second. */}}
{{- define "kvlens.probes" -}}
livenessProbe:
  httpGet: {path: /livez, port: {{ . }}}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}
