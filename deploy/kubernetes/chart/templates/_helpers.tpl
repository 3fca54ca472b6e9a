{{- define "snug.labels" -}}
app.kubernetes.io/name: snug
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The newest version of its API that this cluster has, or else what to do. */}}
{{- define "snug.admissionVersion" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1beta1
{{- else -}}
{{ fail "this cluster has no MutatingAdmissionPolicy: it needs Kubernetes 1.36, or 1.34 with the feature gate MutatingAdmissionPolicy and admissionregistration.k8s.io/v1beta1 switched on. Install with --set policy.enabled=false, and patch single Deployments: deploy/kubernetes/deployment-init-container.yaml. (For helm template: --api-versions admissionregistration.k8s.io/v1/MutatingAdmissionPolicy)" }}
{{- end -}}
{{- end }}
