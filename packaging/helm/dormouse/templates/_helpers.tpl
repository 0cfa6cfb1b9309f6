{{- define "dormouse.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "dormouse.labels" -}}
{{ include "dormouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "dormouse.selector" -}}
app.kubernetes.io/name: dormouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The chart's own Valkey. Its pods must not match the selector of the service. */}}
{{- define "dormouse.valkey.selector" -}}
app.kubernetes.io/name: dormouse-valkey
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* A value as TOML writes it. Strings, numbers and booleans are the same in JSON. */}}
{{- define "dormouse.value" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true -}}
{{- range $name, $value := . -}}
{{- if not $first }},{{ end }} {{ $name | toJson }} = {{ include "dormouse.value" $value }}
{{- $first = false -}}
{{- end }} }
{{- else if kindIs "slice" . -}}
[{{- range $at, $value := . -}}
{{- if $at }}, {{ end }}{{ include "dormouse.value" $value }}
{{- end -}}]
{{- else -}}
{{ . | toJson }}
{{- end -}}
{{- end -}}

{{- define "dormouse.options" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ include "dormouse.value" $value }}
{{- end }}
{{- end -}}

{{/* The path of the admin socket, which the drain needs. */}}
{{- define "dormouse.admin" -}}
{{- $admin := .Values.options.admin | default "/run/dormouse/admin.sock" -}}
{{- if not (hasPrefix "/" $admin) -}}
{{- fail (printf "options.admin: %q is not the path of a socket, which the drain of a pod needs; leave it out, or give a path in a volume of the pod" $admin) -}}
{{- end -}}
{{- $admin -}}
{{- end -}}

{{/* The secret with what seals the ticket keys. */}}
{{- define "dormouse.tickets.secret" -}}
{{- .Values.tickets.existingSecret | default (printf "%s-tickets" (include "dormouse.name" .)) -}}
{{- end -}}

{{- define "dormouse.tickets.url" -}}
{{- if eq .Values.tickets.store "valkey" -}}
redis://:${TICKET_STORE_PASSWORD}@{{ include "dormouse.name" . }}-valkey:6379
{{- else -}}
{{- $url := .Values.tickets.url -}}
{{- if not (regexMatch "^rediss?://[^@]+$" $url) -}}
{{- fail (printf "tickets.url: %q is not redis://HOST:PORT or rediss://HOST:PORT; a password belongs in the secret `tickets.existingSecret`" $url) -}}
{{- end -}}
{{ $url | replace "://" "://:${TICKET_STORE_PASSWORD}@" }}
{{- end -}}
{{- end -}}

{{/* Options of the program: the chart's own, then the user's. An option that the chart makes from another value
     is refused here, so that no option is written twice. */}}
{{- define "dormouse.program" -}}
{{- $own := dict "admin" (include "dormouse.admin" .) -}}
{{- if .Values.metrics.enabled -}}
{{- $_ := set $own "metrics" (printf ":%v" .Values.metrics.port) -}}
{{- end -}}
{{- if .Values.redirect.enabled -}}
{{- $_ := set $own "redirect" ":8080" -}}
{{- $_ := set $own "redirect_port" (int .Values.service.port) -}}
{{- end -}}
{{- if ne .Values.tickets.store "none" -}}
{{- $_ := set $own "ticket_keys" (include "dormouse.tickets.url" .) -}}
{{- $_ := set $own "ticket_secret_file" "/tickets/secret" -}}
{{- if .Values.tickets.caSecret -}}
{{- $_ := set $own "ticket_store_ca" "/tickets-ca/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := omit $own "admin" -}}
{{- if hasKey $.Values.options $name -}}
{{- fail (printf "options.%s: the chart sets this option from its values `metrics`, `redirect` and `tickets`" $name) -}}
{{- end -}}
{{- end -}}
{{- include "dormouse.options" (merge $own (omit .Values.options "admin")) -}}
{{- end -}}

{{/* A route: the listener and the certificates are the chart's, the rest is the user's. */}}
{{- define "dormouse.route" -}}
{{- $route := .route -}}
{{- range $name := list "listen" "certificates" -}}
{{- if hasKey $route $name -}}
{{- fail (printf "routes: the chart sets `%s`; certificates come from the secrets in `tlsSecrets`" $name) -}}
{{- end -}}
{{- end -}}
{{- $own := dict "listen" ":8443" -}}
{{- if not $route.pass_through -}}
{{- $certificates := list -}}
{{- range $secret := .root.Values.tlsSecrets -}}
{{- $certificates = append $certificates (dict "cert" (printf "/keys/%s/tls.crt" $secret) "key" (printf "/keys/%s/tls.key" $secret)) -}}
{{- end -}}
{{- $_ := set $own "certificates" $certificates -}}
{{- if .root.Values.clientCaSecret -}}
{{- $_ := set $own "client_ca" "/client-ca/ca.crt" -}}
{{- $_ := set $own "client_certificates" "required" -}}
{{- end -}}
{{- end -}}
{{- include "dormouse.options" (mergeOverwrite $own $route) -}}
{{- end -}}
