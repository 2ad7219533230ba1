module devinfo-cni.io

go 1.25.0
