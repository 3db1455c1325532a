{{/*
All that the operator may do, and all that it does.  It reads no Secret and no Node, and can give nobody a right.
*/}}
{{- define "tfcluster-operator.rules" -}}
# Only for ttlSecondsAfterFinished.
- apiGroups: [tfcluster.dev]
  resources: [tfclusters]
  verbs: [delete, get, list, watch]
- apiGroups: [tfcluster.dev]
  resources: [tfclusters/status]
  verbs: [patch]
# Required for owner references with blockOwnerDeletion.
- apiGroups: [tfcluster.dev]
  resources: [tfclusters/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [{{ get (dict "Kubernetes" "scheduling.k8s.io" "SchedulerPlugins" "scheduling.x-k8s.io" "Volcano" "scheduling.volcano.sh") .Values.gangs.scheduler }}]
  resources: [podgroups]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [create, delete, list, patch, watch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/*
What the operator reads that is in no namespace: which nodes the pods of a queue may use, and how urgent they are.
*/}}
{{- define "tfcluster-operator.queueRules" -}}
- apiGroups: [kueue.x-k8s.io]
  resources: [resourceflavors]
  verbs: [list, watch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloadpriorityclasses]
  verbs: [get]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [get]
{{- end -}}
