{{/*
The other releases in this cluster, as far as their admission policies tell: a JSON list of who each is, and where it works
(an empty list means everywhere).

NB: a lookup that is refused fails the release. Who makes the policy may list its kind, as `helm --wait` does it, too.
*/}}
{{- define "tfcluster-operator.neighbours" -}}
{{- $found := list -}}
{{- if include "tfcluster-operator.hasAdmissionPolicy" . -}}
{{- $own := include "tfcluster-operator.policyName" . -}}
{{- $kind := "ValidatingAdmissionPolicy" -}}
{{- range get (lookup "admissionregistration.k8s.io/v1" $kind "" "") "items" | default list -}}
{{- if and (ne .metadata.name $own) (eq (dig "metadata" "labels" "app.kubernetes.io/name" "" .) $.Chart.Name) -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- $release := get $annotations "meta.helm.sh/release-name" | default .metadata.name -}}
{{- $home := get $annotations "meta.helm.sh/release-namespace" | default "?" -}}
{{- $namespaces := list -}}
{{- range dig "spec" "matchConstraints" "namespaceSelector" "matchExpressions" list . -}}
{{- $namespaces = concat $namespaces .values -}}
{{- end -}}
{{- $found = append $found (dict "who" (printf "release %s in namespace %s" $release $home) "namespaces" $namespaces) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A line for each other release that works in a namespace of this one. */}}
{{- define "tfcluster-operator.overlaps" -}}
{{- $own := include "tfcluster-operator.namespaces" . | fromJsonArray -}}
{{- range include "tfcluster-operator.neighbours" . | fromJsonArray -}}
{{- $theirs := .namespaces -}}
{{- $both := list -}}
{{- range $own -}}
{{- if or (not $theirs) (has . $theirs) -}}
{{- $both = append $both . -}}
{{- end -}}
{{- end -}}
{{- if not $own -}}
{{- $both = $theirs | default (list "every namespace") -}}
{{- end }}
{{- if $both }}
  {{ .who }}: {{ join ", " $both }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
A line for each namespace with TFClusters in which neither this release works nor another one.

NB: who makes the aggregated roles has the right to list TFClusters, or the server would refuse the roles.
*/}}
{{- define "tfcluster-operator.unserved" -}}
{{- $known := .Capabilities.APIVersions.Has "tfcluster.dev/v1alpha1/TFCluster" -}}
{{- $served := include "tfcluster-operator.namespaces" . | fromJsonArray -}}
{{- $everywhere := not $served -}}
{{- range include "tfcluster-operator.neighbours" . | fromJsonArray -}}
{{- $served = concat $served .namespaces -}}
{{- $everywhere = or $everywhere (not .namespaces) -}}
{{- end -}}
{{- if and $known .Values.rbac.create .Values.aggregateRoles (not $everywhere) -}}
{{- $names := dict -}}
{{- range get (lookup "tfcluster.dev/v1alpha1" "TFCluster" "" "") "items" | default list -}}
{{- if not (has .metadata.namespace $served) -}}
{{- $_ := set $names .metadata.namespace (append (get $names .metadata.namespace | default list) .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- range $namespace, $clusters := $names }}
  {{ $namespace }}: {{ join ", " $clusters | trunc 200 }}
{{- end -}}
{{- end -}}
{{- end -}}
