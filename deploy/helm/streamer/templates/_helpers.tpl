{{- define "streamer.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "streamer.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end -}}
{{- end }}

{{/* Labels of what belongs to one row: (dict "root" $ "name" NAME) */}}
{{- define "streamer.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "streamer.labels" -}}
{{ include "streamer.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "streamer.hardened" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Names of variables: settings as texts or JSON, secrets as files, then `env` as it is. */}}
{{- define "streamer.env" -}}
{{- $row := .row -}}
{{- range $group, $fields := mergeOverwrite (deepCopy .root.Values.settings) (deepCopy ($row.settings | default dict)) }}
{{- if or (not (kindIs "map" $fields)) (has $group (list "upstreams" "rubrics")) }}
- name: {{ printf "STREAMER_%s" $group | upper }}
  value: {{ kindIs "string" $fields | ternary $fields (toJson $fields) | quote }}
{{- else }}
{{- range $field, $value := $fields }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ printf "STREAMER_%s_%s" $group $field | upper }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $setting, $_ := mergeOverwrite (deepCopy .root.Values.secrets) (deepCopy ($row.secrets | default dict)) }}
- name: STREAMER_{{ $setting | replace "." "_" | upper }}_FILE
  value: /run/secrets/streamer/{{ $setting }}
{{- end }}
{{- range $name, $value := mergeOverwrite (deepCopy .root.Values.env) (deepCopy ($row.env | default dict)) }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* One container of a row: (dict "root" $ "row" ROW "name" NAME); the caller adds command, ports and probes. */}}
{{- define "streamer.container" -}}
name: {{ .name }}
image: {{ include "streamer.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext: {{- include "streamer.hardened" . | nindent 2 }}
env: {{- include "streamer.env" . | nindent 2 }}
{{- with .row.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: secrets, mountPath: /run/secrets/streamer, readOnly: true}
{{- if eq .name "gates" }}
  - {name: gates, mountPath: /etc/streamer/gates, readOnly: true}
{{- end }}
{{- range $volume, $_ := mergeOverwrite (deepCopy .root.Values.volumes) (deepCopy (.row.volumes | default dict)) }}
  - {name: {{ $volume }}, mountPath: /etc/streamer/{{ $volume }}, readOnly: true}
{{- end }}
{{- end }}

{{/* What a pod of a row has around its containers. */}}
{{- define "streamer.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false  # they would look like settings
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {}
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
      {{- range $setting, $key := mergeOverwrite (deepCopy .root.Values.secrets) (deepCopy (.row.secrets | default dict)) }}
        - secret: {name: {{ $key.name }}, items: [{key: {{ $key.key }}, path: {{ $setting }}}]}
      {{- end }}
{{- if eq .name "gates" }}
  - {name: gates, configMap: {name: {{ include "streamer.name" .root }}-gates}}
{{- end }}
{{- range $volume, $source := mergeOverwrite (deepCopy .root.Values.volumes) (deepCopy (.row.volumes | default dict)) }}
  - {{ merge (dict "name" $volume) $source | toYaml | nindent 4 | trim }}
{{- end }}
{{- with mergeOverwrite (deepCopy .root.Values.pod) (deepCopy (.row.pod | default dict)) }}
{{ toYaml . }}
{{- end }}
{{- end }}
