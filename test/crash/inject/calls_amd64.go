package inject

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

// older are calls that not every architecture has.
var older = map[int32]shape{
	unix.SYS_RENAMEAT: at("renameat", 2),
	unix.SYS_OPEN:     {"open", none, 0, none, 1},
	unix.SYS_CREAT:    by("creat", 0),
	unix.SYS_CHMOD:    by("chmod", 0),
	unix.SYS_CHOWN:    by("chown", 0),
	unix.SYS_LCHOWN:   by("lchown", 0),
	unix.SYS_RENAME:   by("rename", 1),
	unix.SYS_LINK:     by("link", 1),
	unix.SYS_SYMLINK:  by("symlink", 1),
	unix.SYS_UNLINK:   by("unlink", 0),
	unix.SYS_RMDIR:    by("rmdir", 0),
	unix.SYS_MKDIR:    by("mkdir", 0),
	unix.SYS_MKNOD:    by("mknod", 0),
}
