// The public library, a module of its own so that nothing of the programs comes
// with it; see CONTRIBUTING.md.
module devinfo-cni.io/devinfo

go 1.25.0
