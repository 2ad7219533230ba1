package link

import (
	"os"

	"golang.org/x/sys/unix"
)

// Matters and Concerns are the filters of Events. ListenToLinks opens a socket that receives messages about interfaces.
var (
	Matters, Concerns = matters, concerns

	ListenToLinks = func() (*os.File, error) { return listen(unix.NETLINK_ROUTE, groups(unix.RTNLGRP_LINK)) }
)
