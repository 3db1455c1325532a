{{/* The Service that only tells a ServiceMonitor where the operators are. */}}
{{- define "tfcluster-operator.metricsName" -}}
{{- printf "%s-metrics" (include "tfcluster-operator.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* The ConfigMap with the dashboard. */}}
{{- define "tfcluster-operator.dashboardName" -}}
{{- printf "%s-dashboard" (include "tfcluster-operator.fullname" .) -}}
{{- end -}}
