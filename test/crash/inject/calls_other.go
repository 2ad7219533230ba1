//go:build !amd64 && !arm64

package inject

const arch = 0 // no table

var older map[int32]shape
