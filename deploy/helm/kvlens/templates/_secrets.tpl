{{/* Environment variables that name files of Secrets: (list ROOT SECTIONS). */}}
{{- define "kvlens.secrets.env" -}}
{{- $root := index . 0 -}}
{{- range $section := index . 1 }}
{{- range $setting, $file := index $root.Values.secrets.files $section }}
{{- if $file.secret }}
- name: {{ printf "KVLENS_%s__%s" $section $setting | upper }}
  value: /etc/kvlens/secrets/{{ $section }}/{{ $setting }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The sources of the volume with those files: (list ROOT SECTIONS). */}}
{{- define "kvlens.secrets.sources" -}}
{{- $root := index . 0 -}}
{{- range $section := index . 1 }}
{{- range $setting, $file := index $root.Values.secrets.files $section }}
{{- if $file.secret }}
- secret:
    name: {{ $file.secret | quote }}
    items: [{key: {{ $file.key | quote }}, path: {{ $section }}/{{ $setting }}}]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Changes with the Secrets that a part uses: (list ROOT SECTIONS VALUES-OF-THE-PART). Versions, so that nothing
that is secret goes into an annotation. */}}
{{- define "kvlens.secrets.checksum" -}}
{{- $root := index . 0 -}}
{{- $names := list -}}
{{- range $section := index . 1 -}}
{{- range index $root.Values.secrets.files $section -}}
{{- with .secret -}}{{ $names = append $names . }}{{- end -}}
{{- end -}}
{{- end -}}
{{- range concat $root.Values.envFrom (index . 2).envFrom -}}
{{- with dig "secretRef" "name" "" . -}}{{ $names = append $names . }}{{- end -}}
{{- end -}}
{{- range concat $root.Values.env (index . 2).env -}}
{{- with dig "valueFrom" "secretKeyRef" "name" "" . -}}{{ $names = append $names . }}{{- end -}}
{{- end -}}
{{- range concat $root.Values.volumes (index . 2).volumes -}}
{{- with dig "secret" "secretName" "" . -}}{{ $names = append $names . }}{{- end -}}
{{- end -}}
{{- $versions := dict "" $root.Values.secrets.revision -}}
{{- if $root.Values.secrets.lookup -}}
{{- range $names | uniq -}}
{{- $_ := set $versions . (dig "metadata" "resourceVersion" "" (lookup "v1" "Secret" $root.Release.Namespace .)) -}}
{{- end -}}
{{- end -}}
{{- toJson $versions | sha256sum -}}
{{- end -}}
