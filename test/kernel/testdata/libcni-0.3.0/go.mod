// libcni of 2016. cni/pkg/version/legacy_examples describes it as a runtime of CNI 0.1.0.
module runtime010

go 1.26

require github.com/containernetworking/cni v0.3.0
