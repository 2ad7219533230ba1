package link

import (
	"strconv"
	"strings"
)

// A portName is a parsed phys_port_name. Drivers and devlink print these forms, where N is a number:
//
//	pN, pNsN, lNpN, lNpNsN             a port of the card, a split port, one of a line card (net/devlink/port.c,
//	                                   mlx5/core/en_rep.c, nfp/nfp_port.c)
//	nN                                 a data interface of nfp (nfp/nfp_net_common.c)
//	sby                                the standby interface of virtio_net (virtio_net.c)
//	pfN, pfNvfN, pfNsfN                representor of a PF, VF, SF (net/devlink/port.c; mlx5/core/en_rep.c, nfp/nfp_port.c,
//	                                   bnxt/bnxt_vfr.c, liquidio/lio_vf_rep.c, hisilicon/hns3/hns3pf/hclge_vf_rep.c)
//	cNpfN, cNpfNvfN, cNpfNsfN          the same for another controller, such as the server of a DPU (net/devlink/port.c)
//	pfNsN                              representor of one of a PF's interfaces (nfp/nfp_port.c)
//	pNpfNvfN                           representor of a VF (sfc/ef100_rep.c)
//	pNifNpfN, pNifNpfNvfN              the same for another interface of the card (sfc/ef100_rep.c of the vendor)
//	pfNvfrN                            representor of a VSI, whose number is not that of a VF (intel/ice/ice_repr.c)
//	N                                  representor of mlx5 until Linux 4.20
type portName struct {
	represents bool // the interface is a representor
	known      bool // it represents a VF or SF of this host, which the following fields identify
	flavour    Flavour
	pf, number uint64
}

func parsePortName(name string) (p portName) {
	words, numbers := tokens(name)
	p.represents = strings.Contains(name, "pf") || len(words) == 1 && words[0] == ""
	if len(words) == 3 && words[0] == "p" {
		words, numbers = words[1:], numbers[1:]
	}
	if len(words) != 2 || words[0] != "pf" || words[1] != "vf" && words[1] != "sf" {
		return p
	}
	if words[1] == "sf" {
		p.flavour = SF
	}
	p.known, p.pf, p.number = numbers[0] < 1<<16, numbers[0], numbers[1]
	return p
}

// tokens splits a name such as "pf0vf3" into words and the 32-bit numbers after them. It returns none for other names.
func tokens(name string) (words []string, numbers []uint64) {
	const digits = "0123456789"
	for name != "" {
		start := max(strings.IndexAny(name, digits), 0)
		rest := strings.TrimLeft(name[start:], digits)
		n, err := strconv.ParseUint(name[start:len(name)-len(rest)], 10, 32)
		if err != nil {
			return nil, nil
		}
		words, numbers, name = append(words, name[:start]), append(numbers, n), rest
	}
	return words, numbers
}
