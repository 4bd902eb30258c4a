{{/* kvlens.toml of a map of sections. A scalar or a list of scalars is written in TOML as in JSON. */}}
{{- define "kvlens.toml" -}}
{{- range $section, $values := . }}
{{- if kindIs "slice" $values }}
{{- range $values }}
[[{{ $section }}]]{{ include "kvlens.toml.keys" . }}
{{- end }}
{{- else }}
[{{ $section }}]{{ include "kvlens.toml.keys" $values }}
{{- range $key, $value := $values }}
{{- if include "kvlens.toml.tables" $value }}
{{- range $value }}
[[{{ $section }}.{{ $key }}]]{{ include "kvlens.toml.keys" . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kvlens.toml.keys" -}}
{{- range $key, $value := . }}
{{- if not (or (kindIs "invalid" $value) (include "kvlens.toml.tables" $value)) }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Not empty if the value is a list of tables. */}}
{{- define "kvlens.toml.tables" -}}
{{- if kindIs "slice" . }}{{ range . }}{{ if kindIs "map" . }}tables{{ end }}{{ end }}{{ end }}
{{- end -}}
