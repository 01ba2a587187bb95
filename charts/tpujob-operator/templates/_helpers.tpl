{{- define "tpujob.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tpujob.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "tpujob.fullname" .) -}}
{{- end -}}

{{- /* What selects the operator's pod; must never change, for a Deployment's selector cannot. */ -}}
{{- define "tpujob.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Of the pod of `helm test`; not those of the operator, whose Service and PodDisruptionBudget must not select it. */ -}}
{{- define "tpujob.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* On every object. Nothing that values say can take the place of one of ours. */ -}}
{{- define "tpujob.labels" -}}
{{- $ours := dict
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/component" "operator"
  "app.kubernetes.io/part-of" "tpujob"
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $ours (include "tpujob.selectorLabels" . | fromYaml) .Values.commonLabels) -}}
{{- end -}}

{{- /*
Takes (dict "image" <repository, tag, digest> "root" $). preflight.yaml refuses names that no node can pull.
*/ -}}
{{- define "tpujob.image" -}}
{{- $registry := .root.Values.image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /*
What the operator calls, and nothing else; a test compares this with the audit log of a real API server.
- It never writes a TpuTrainingJob but its status; JobSet makes the Jobs, Jobs make the pods.
- It never reads Secrets: jobs name them, the kubelet resolves them. Each job of several hosts gets one, made once.
*/ -}}
{{- define "tpujob.rules" -}}
- apiGroups: [tpujob.dev]
  resources: [tputrainingjobs]
  verbs: [get, list, watch]
- apiGroups: [tpujob.dev]
  resources: [tputrainingjobs/status]
  verbs: [patch]
# A JobSet blocks the deletion of its owner; some clusters want this right from who says so.
- apiGroups: [tpujob.dev]
  resources: [tputrainingjobs/finalizers]
  verbs: [update]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch, create, patch, delete]
# The number of independent workers changes in the Job of a running JobSet.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Whether the Service by which hosts find each other is the JobSet's own.
- apiGroups: [""]
  resources: [services]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
# Why a job with a queue waits; and the place of one that MultiKueue runs.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, create, patch, delete]
- apiGroups: [visibility.kueue.x-k8s.io]
  resources: [localqueues/pendingworkloads]
  verbs: [get]
# By which the hosts of a job know each other.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- if .Values.networkPolicy.jobs }}
# An apply that finds nothing creates.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}
