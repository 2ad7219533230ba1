package inject

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

var older = map[int32]shape{unix.SYS_RENAMEAT: at("renameat", 2)}
