package link

import (
	"os"

	"golang.org/x/sys/unix"
)

// The filters of Events, and a socket with the messages about interfaces that they filter.
var (
	Matters, Concerns = matters, concerns

	ListenToLinks = func() (*os.File, error) { return listen(unix.NETLINK_ROUTE, groups(unix.RTNLGRP_LINK)) }
)
