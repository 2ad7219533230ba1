module devinfo-cni.io

go 1.26.0

toolchain go1.26.8

require (
	devinfo-cni.io/devinfo v0.0.0 // the library, in this repository
	github.com/Mellanox/rdmamap v1.1.0 // tests: the RDMA devices that the SR-IOV device plugin and rdma-cni find
	github.com/cilium/ebpf v0.22.0 // cni-dra-driver: finds and detaches the BPF programs that a pod left on its interface
	github.com/containerd/nri v0.12.5 // events of the runtime, for both agents
	github.com/containernetworking/cni v1.3.0 // libcni, results and versions; v1.3.1 imports OpenTelemetry and net/http, which slows the start of the plugin
	github.com/containernetworking/plugins v1.9.1 // pkg/ns: enters network namespaces
	github.com/google/go-cmp v0.7.0 // tests
	github.com/k8snetworkplumbingwg/sriovnet v1.3.0 // devinfoctl and tests: the representors that OVN-Kubernetes, ovs-cni and the SR-IOV operators find
	github.com/opencontainers/runtime-spec v1.3.0 // tests: containers with and without what is injected
	github.com/prometheus/client_golang v1.24.1 // metrics of both agents
	github.com/prometheus/client_model v0.6.2 // tests: read metrics
	github.com/spf13/cobra v1.10.2 // command lines
	github.com/spf13/pflag v1.0.10 // command lines
	github.com/vishvananda/netlink v1.3.2-0.20251101063711-6e61cd407d1d // interfaces, devlink and vDPA
	github.com/vishvananda/netns v0.0.5 // network namespaces for netlink
	go.yaml.in/yaml/v3 v3.0.5 // line numbers of errors in YAML
	golang.org/x/sys v0.47.0 // system calls
	golang.org/x/tools v0.47.0 // txtar, the format of captures and stories
	google.golang.org/grpc v1.82.1 // the API of the kubelet
	k8s.io/api v0.37.2 // claims and ResourceSlices
	k8s.io/apimachinery v0.37.2 // objects of the API
	k8s.io/cli-runtime v0.37.2 // flags and tables of kubectl devinfo
	k8s.io/client-go v0.37.2 // the API server, for cni-dra-driver and kubectl devinfo
	k8s.io/dynamic-resource-allocation v0.37.2 // kubeletplugin and resourceslice, for cni-dra-driver
	k8s.io/klog/v2 v2.140.0 // the log of the Kubernetes libraries
	k8s.io/kubelet v0.37.2 // DRA and PodResources APIs
	k8s.io/streaming v0.37.2 // SPDY, where kubectl devinfo cannot use WebSockets
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // pointers in objects of the API
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // strict reading of Kubernetes objects
	sigs.k8s.io/yaml v1.6.0 // YAML of Kubernetes objects
	tags.cncf.io/container-device-interface v1.1.2 // rules for CDI names; tests: the reader of container runtimes
	tags.cncf.io/container-device-interface/specs-go v1.1.1 // CDI specs
)

require (
	github.com/k8snetworkplumbingwg/network-attachment-definition-client v1.7.7
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	gopkg.in/k8snetworkplumbingwg/multus-cni.v4 v4.3.0
	sigs.k8s.io/controller-runtime v0.25.2
)

require (
	cel.dev/expr v0.25.1 // indirect
	github.com/Azure/go-ansiterm v0.0.0-20250102033503-faa5f7b0171c // indirect
	github.com/alexflint/go-filemutex v1.3.0 // indirect
	github.com/antlr4-go/antlr/v4 v4.13.1 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/containerd/log v0.1.0 // indirect
	github.com/containerd/ttrpc v1.2.7 // indirect
	github.com/coreos/go-iptables v0.8.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/evanphx/json-patch/v5 v5.9.11 // indirect
	github.com/fsnotify/fsnotify v1.9.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-errors/errors v1.4.2 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.27.1 // indirect
	github.com/go-openapi/swag/cmdutils v0.27.1 // indirect
	github.com/go-openapi/swag/conv v0.27.1 // indirect
	github.com/go-openapi/swag/fileutils v0.27.1 // indirect
	github.com/go-openapi/swag/jsonutils v0.27.1 // indirect
	github.com/go-openapi/swag/loading v0.27.1 // indirect
	github.com/go-openapi/swag/mangling v0.27.1 // indirect
	github.com/go-openapi/swag/netutils v0.27.1 // indirect
	github.com/go-openapi/swag/pools v0.27.1 // indirect
	github.com/go-openapi/swag/stringutils v0.27.1 // indirect
	github.com/go-openapi/swag/typeutils v0.27.1 // indirect
	github.com/go-openapi/swag/yamlutils v0.27.1 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/google/cel-go v0.29.2 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/knqyf263/go-plugin v0.9.0 // indirect
	github.com/liggitt/tabwriter v0.0.0-20181228230101-89fcab3d43de // indirect
	github.com/mattn/go-shellwords v1.0.12 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/moby/sys/mountinfo v0.7.2 // indirect
	github.com/moby/term v0.5.2 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/monochromegane/go-gitignore v0.0.0-20200626010858-205db1a8cc00 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/networkplumbing/go-nft v0.4.0 // indirect
	github.com/peterbourgon/diskv v2.0.1+incompatible // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/prometheus/common v0.70.1 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/safchain/ethtool v0.6.2 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	github.com/spf13/afero v1.15.0 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	github.com/xlab/treeprint v1.2.0 // indirect
	go.etcd.io/etcd/client/pkg/v3 v3.7.0 // indirect
	go.opentelemetry.io/otel v1.44.0 // indirect
	go.opentelemetry.io/otel/trace v1.44.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.1 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/exp v0.0.0-20260410095643-746e56fc9e2f // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/term v0.45.0 // whether output goes to a terminal
	golang.org/x/text v0.40.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
	k8s.io/apiextensions-apiserver v0.37.0 // indirect
	k8s.io/apiserver v0.37.2 // indirect
	k8s.io/component-base v0.37.2 // indirect
	k8s.io/component-helpers v0.37.2 // indirect
	k8s.io/klog v1.0.0 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	sigs.k8s.io/knftables v0.0.18 // indirect
	sigs.k8s.io/kustomize/api v0.21.1 // indirect
	sigs.k8s.io/kustomize/kyaml v0.21.1 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)

replace devinfo-cni.io/devinfo => ./devinfo

tool (
	github.com/containernetworking/cni/cnitool
	github.com/containernetworking/plugins/plugins/ipam/host-local
	github.com/containernetworking/plugins/plugins/main/bridge
	github.com/containernetworking/plugins/plugins/main/host-device
	github.com/containernetworking/plugins/plugins/main/loopback
	github.com/containernetworking/plugins/plugins/main/macvlan
	github.com/containernetworking/plugins/plugins/main/vlan
	github.com/containernetworking/plugins/plugins/meta/bandwidth
	github.com/containernetworking/plugins/plugins/meta/portmap
	github.com/containernetworking/plugins/plugins/meta/tuning
	gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus
)
