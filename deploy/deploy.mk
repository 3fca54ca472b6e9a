# deploy.mk: what is deployed beside the library: rules, dashboards, the chart. Included by the top-level Makefile.
#
#   make test-monitoring  the rules and the exporter's metrics on a real Prometheus
#   make test-fleet       real servers as the pods of a fleet
#   make dashboards       writes the dashboards
#   make test-kubernetes  the policy and the chart in a real API server

.PHONY: test-monitoring
test-monitoring: all build/monitoring-tools/installed
	tools/run_unittests.py deploy/monitoring/tests $(AGAIN)

# Real servers under load as the pods of a fleet, for minutes, hence not in make test. SEED=n: another load, other halves.
.PHONY: test-fleet
test-fleet: all build/deps-test
	tools/run_unittests.py deploy/monitoring/tests/fleet $(AGAIN)

# The dashboards, by the builders that Grafana makes of its schemas.
.PHONY: dashboards
dashboards: build/monitoring-tools/installed
	build/monitoring-tools/bin/python deploy/monitoring/dashboards

build/monitoring-tools/installed: deploy/monitoring/requirements.txt | build/deps-check
	$(python_tools)

# A control plane of Kubernetes, whose programs are compiled from their Go modules: the first time takes about 10 minutes
# on 2 CPUs, and fetches them. No kubelet: nothing runs in the pods.
#   build/dist-tools/bin/python deploy/kubernetes/tests/cluster/test_cluster.py -k share    one test
CLUSTER = deploy/kubernetes/tests/cluster
CLUSTER_MODULES = $(CLUSTER)/go.mod $(CLUSTER)/go.sum
CLUSTER_PROGRAMS = $(addprefix build/cluster/bin/,etcd kube-apiserver kube-controller-manager kubectl helm)
CLUSTER_VERSION = $(shell sed -n 's/.*k8s.io\/kubernetes \(v[0-9.]*\)$$/\1/p' $(CLUSTER)/go.mod)
$(CLUSTER_PROGRAMS): MODULE = k8s.io/kubernetes/cmd/$(@F)
build/cluster/bin/etcd: MODULE = go.etcd.io/etcd/server/v3
build/cluster/bin/helm: MODULE = helm.sh/helm/v4/cmd/helm
# Where modules have the definitions of their kinds.
CLUSTER_KINDS = \
  github.com/prometheus-operator/prometheus-operator/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml \
  github.com/prometheus-operator/prometheus-operator/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml \
  github.com/argoproj/argo-rollouts/manifests/crds/analysis-template-crd.yaml \
  github.com/fluxcd/flagger/artifacts/flagger/crd.yaml
GO_SETTINGS = CGO_ENABLED=0 GOTOOLCHAIN=$${GOTOOLCHAIN:-auto}

.PHONY: test-kubernetes
test-kubernetes: all build/dist-tools/installed $(CLUSTER_PROGRAMS) build/cluster/kinds
	build/dist-tools/bin/python tools/run_unittests.py $(CLUSTER) $(AGAIN)

# A Go older than 1.21 can't fetch the Go that the modules ask for.
$(CLUSTER_PROGRAMS): build/cluster/bin/%: $(CLUSTER_MODULES) | build/deps-kubernetes
	@echo "compiling $*"
	@$(GO_SETTINGS) go -C $(CLUSTER) build -mod=readonly -trimpath -buildvcs=false \
	  -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(CLUSTER_VERSION)' -o $(CURDIR)/$@ $(MODULE)

build/cluster/kinds: $(CLUSTER)/kinds/go.mod $(CLUSTER)/kinds/go.sum deploy/deploy.mk | build/deps-kubernetes
	@rm -rf $@ $@.new && mkdir -p $@.new
	@for file in $(CLUSTER_KINDS); do \
	  module=$$(echo $$file | cut -d/ -f1-3) && $(GO_SETTINGS) go -C $(CLUSTER)/kinds mod download -json $$module >$@.new/module && \
	  folder=$$(sed -n 's/.*"Dir": "\(.*\)",*/\1/p' $@.new/module) && \
	  cp "$$folder/$${file#$$module/}" $@.new/$$(basename $$module)-$$(basename $$file) || exit 1; \
	done
	@rm $@.new/module && chmod -R u+w $@.new && mv $@.new $@
