// Definitions of kinds that others bring to a cluster, as files in their modules; deploy/deploy.mk fetches them.
// Nothing of these is compiled.
module snug.example/kinds

go 1.24.0

require (
	github.com/argoproj/argo-rollouts v1.8.3
	github.com/fluxcd/flagger v1.36.1
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
