module devinfo-cni.io

go 1.25.0

require (
	github.com/containernetworking/cni v1.3.0
	github.com/containernetworking/plugins v1.9.1
	github.com/k8snetworkplumbingwg/sriovnet v1.3.0
	github.com/vishvananda/netlink v1.3.2-0.20251101063711-6e61cd407d1d
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.35.0
	golang.org/x/tools v0.36.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/spf13/afero v1.15.0 // indirect
	golang.org/x/text v0.28.0 // indirect
)
