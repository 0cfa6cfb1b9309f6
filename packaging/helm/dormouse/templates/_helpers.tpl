{{- define "dormouse.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "dormouse.labels" -}}
app.kubernetes.io/name: dormouse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "dormouse.selector" -}}
app.kubernetes.io/name: dormouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* A value as TOML writes it; JSON's strings, numbers, booleans and lists are the same there. */}}
{{- define "dormouse.options" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- end -}}
