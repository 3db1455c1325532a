{{/*
The owner of the CRD: "ours" if it does not exist or belongs to this release, otherwise "not part of a release" or
"release X in namespace Y".  Empty if the release does not contain the CRD.

Helm does not change an object without its ownership labels: a CRD from the folder crds/ of an older chart, or from
kubectl, does not have them, and that of another release has others.  Without a server, the CRD is ours.
*/}}
{{- define "tfcluster-operator.definition" -}}
{{- if .Values.crds.enabled -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "tfclusters.tfcluster.dev" -}}
{{- $annotations := dig "metadata" "annotations" (dict) $found -}}
{{- $name := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- $manager := dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $found -}}
{{- if or (not $found) (and (eq $manager "Helm") (eq $name .Release.Name) (eq $namespace .Release.Namespace)) -}}
ours
{{- else if and $name $namespace -}}
release {{ $name }} in namespace {{ $namespace }}
{{- else -}}
not part of a release
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Whether the admission policy is rendered: if it is enabled and the server has its API, or without a server.
*/}}
{{- define "tfcluster-operator.hasAdmissionPolicy" -}}
{{- if .Values.admissionPolicy.enabled -}}
{{- $kinds := .Capabilities.APIVersions -}}
{{- if or ($kinds.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (not ($kinds.Has "apps/v1/Deployment")) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Fails where a watched namespace is missing or goes away, before anything is made: helm would stop half-way, and each later
upgrade again.  Without a server every lookup is empty, so it takes one that finds something to say what is missing.
NB: the release's own namespace may be made by helm itself, after this.  Who makes the definition may read kube-system.
*/}}
{{- define "tfcluster-operator.checkNamespaces" -}}
{{- $missing := list -}}
{{- $watched := without .Values.watchNamespaces .Release.Namespace -}}
{{- $server := false -}}
{{- range $watched -}}
{{- $found := lookup "v1" "Namespace" "" . -}}
{{- if $found -}}
{{- $server = true -}}
{{- end -}}
{{- if or (not $found) (dig "metadata" "deletionTimestamp" "" $found) -}}
{{- $missing = append $missing . -}}
{{- end -}}
{{- end -}}
{{- if and $missing (not $server) -}}
{{- $server = lookup "v1" "Namespace" "" (ternary "kube-system" .Release.Namespace .Values.crds.enabled) -}}
{{- end -}}
{{- if and $missing $server -}}
{{- fail (printf "watchNamespaces: namespace %s does not exist, or is being deleted: create it, or remove it from watchNamespaces" (join ", " $missing)) -}}
{{- end -}}
{{- end -}}
