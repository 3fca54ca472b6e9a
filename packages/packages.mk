# packages.mk: what is released, and how it is tested. Included by the top-level Makefile.
#
#   make dist           everything that is released, for x86-64 and aarch64, in build/dist
#   make test-packages  the packages of languages, made of what `make` built: installed, and programs run under them
#   make test-dist      builds that twice, and installs each package on a clean system; most of an hour
#   make test-kubernetes  the policy in a real API server
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
#   python3 packages/kubernetes/tests/cluster/test_cluster.py -k share    one test
CLUSTER = packages/kubernetes/tests/cluster
CLUSTER_MODULES = $(CLUSTER)/go.mod $(CLUSTER)/go.sum
CLUSTER_PROGRAMS = $(addprefix build/cluster/bin/,etcd kube-apiserver kube-controller-manager kubectl)
CLUSTER_VERSION = $(shell sed -n 's/.*k8s.io\/kubernetes \(v[0-9.]*\)$$/\1/p' $(CLUSTER)/go.mod)
$(CLUSTER_PROGRAMS): MODULE = k8s.io/kubernetes/cmd/$(@F)
build/cluster/bin/etcd: MODULE = go.etcd.io/etcd/server/v3

.PHONY: test-kubernetes
test-kubernetes: $(CLUSTER_PROGRAMS)
	tools/run_unittests.py $(CLUSTER) $(AGAIN)

# A Go older than 1.21 can't fetch the Go that the modules ask for.
$(CLUSTER_PROGRAMS): build/cluster/bin/%: $(CLUSTER_MODULES) | build/deps-kubernetes
	@echo "compiling $*"
	@CGO_ENABLED=0 GOTOOLCHAIN=$${GOTOOLCHAIN:-auto} go -C $(CLUSTER) build -mod=readonly -trimpath -buildvcs=false \
	  -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(CLUSTER_VERSION)' -o $(CURDIR)/$@ $(MODULE)
