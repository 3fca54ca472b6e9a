# packages.mk: what is released, and how it is tested. Included by the top-level Makefile.
#
#   make dist           everything that is released, for x86-64 and aarch64, in build/dist
#   make test-packages  the packages of languages, made of what `make` built: installed, and programs run under them
#   make test-dist      builds that twice, and installs each package on a clean system; most of an hour
#   make test-kubernetes  the policy and the chart in a real API server
#   make dist DIST_FLAGS='--architectures x86_64 --formats linux'

.PHONY: dist
dist: build/deps-dist build/dist-tools/installed
	packages/dist $(DIST_FLAGS)

build/dist-tools/installed: packages/requirements.txt | build/deps-check
	$(python_tools)

# Needs root and a network: systems are made by debootstrap, once, in build/roots.
.PHONY: test-dist
test-dist: dist
	tools/run_unittests.py packages/release_tests

.PHONY: test-packages
test-packages: all build/dist-tools/installed
	tools/run_unittests.py packages/tests
	build/dist-tools/bin/python tools/run_unittests.py packages/kubernetes/tests

# A control plane of Kubernetes, whose programs are compiled from their Go modules: the first time takes about 10 minutes
# on 2 CPUs, and fetches them. No kubelet: nothing runs in the pods.
#   build/dist-tools/bin/python packages/kubernetes/tests/cluster/test_cluster.py -k share    one test
CLUSTER = packages/kubernetes/tests/cluster
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

build/cluster/kinds: $(CLUSTER)/kinds/go.mod $(CLUSTER)/kinds/go.sum packages/packages.mk | build/deps-kubernetes
	@rm -rf $@ $@.new && mkdir -p $@.new
	@for file in $(CLUSTER_KINDS); do \
	  module=$$(echo $$file | cut -d/ -f1-3) && $(GO_SETTINGS) go -C $(CLUSTER)/kinds mod download -json $$module >$@.new/module && \
	  folder=$$(sed -n 's/.*"Dir": "\(.*\)",*/\1/p' $@.new/module) && \
	  cp "$$folder/$${file#$$module/}" $@.new/$$(basename $$module)-$$(basename $$file) || exit 1; \
	done
	@rm $@.new/module && chmod -R u+w $@.new && mv $@.new $@
