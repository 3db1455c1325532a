{{/* The name of everything in a release: the release's name, and the chart's unless it is in there already. */}}
{{- define "tfcluster-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
The name of what is in no namespace.  Releases of one name in two namespaces must not share it.
*/}}
{{- define "tfcluster-operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "tfcluster-operator.fullname" .) -}}
{{- end -}}

{{/* The same for the admission policy, whose name must be a DNS name; no namespace has a dot in its name. */}}
{{- define "tfcluster-operator.policyName" -}}
{{- printf "%s.%s" .Release.Namespace (include "tfcluster-operator.fullname" .) -}}
{{- end -}}

{{/* The name of the rights to the Lease; the release's own namespace may hold those to TFClusters, too. */}}
{{- define "tfcluster-operator.electionName" -}}
{{- printf "%s-election" (include "tfcluster-operator.fullname" .) -}}
{{- end -}}

{{/* What tells the operator's pods from all others; a Deployment can never change it. */}}
{{- define "tfcluster-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "tfcluster-operator.labels" -}}
{{ include "tfcluster-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels, and further ones of one object, which win over commonLabels; the schema keeps both off the chart's own. */}}
{{- define "tfcluster-operator.labelsWith" -}}
{{- $labels := include "tfcluster-operator.labels" (index . 0) | fromYaml -}}
{{- mergeOverwrite $labels (index . 1) | toYaml -}}
{{- end -}}

{{- define "tfcluster-operator.image" -}}
{{- with .Values.image -}}
{{- $repository := ternary (printf "%s/%s" .registry .repository) .repository (ne .registry "") -}}
{{- $tag := .tag | default (ternary "" $.Chart.AppVersion (ne .digest "")) -}}
{{- $repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "tfcluster-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "tfcluster-operator.fullname" .) -}}
{{- end -}}

{{/* The namespaces that the operator works in, as a JSON list; an empty one means all. */}}
{{- define "tfcluster-operator.namespaces" -}}
{{- .Values.watchNamespaces | default (ternary list (list .Release.Namespace) .Values.clusterWide) | toJson -}}
{{- end -}}
