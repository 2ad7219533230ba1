//go:build !amd64 && !arm64

package inject

const arch = 0 // the calls of this architecture are unknown

var older map[int32]shape
