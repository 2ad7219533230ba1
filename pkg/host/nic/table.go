package nic

// Limits that several families have. docs/devices.md explains them.
const (
	severalPorts = "several ports"
	exclusive    = "exclusive RDMA mode"
	bifurcated   = "DPDK: mlx5_core, never vfio-pci"
	noPF         = "no PF"
	noInterface  = "no interface"
	apart        = "interface on another function"
	since618     = "RDMA since Linux 6.18"
)

// Families is the table, sorted as on the page. It has the PCI IDs of the PCI ID database (pci-ids.ucw.cz), or of the driver
// where the database lacks one, and what the drivers of Linux 6.12 to 6.18 do.
var Families = []*Family{
	{
		Driver: "mlx4_core", VFDriver: "mlx4_core", Vendor: "NVIDIA (Mellanox)",
		Products: []Product{
			{Name: "ConnectX-3", IDs: []string{"15b3:1003"}},
			{Name: "ConnectX-3 Pro", IDs: []string{"15b3:1007"}},
			{Name: "ConnectX-3 or ConnectX-3 Pro", VFs: []string{"15b3:1004"}},
		},
		Finds: []string{VF, RDMA, VFIO}, Limits: []string{severalPorts, exclusive},
	},
	{
		Driver: "mlx5_core", VFDriver: "mlx5_core", Vendor: "NVIDIA (Mellanox)",
		Products: []Product{
			{Name: "ConnectX-4", IDs: []string{"15b3:1013"}, VFs: []string{"15b3:1014"}},
			{Name: "ConnectX-4 Lx", IDs: []string{"15b3:1015"}, VFs: []string{"15b3:1016"}},
			{Name: "ConnectX-5", IDs: []string{"15b3:1017"}, VFs: []string{"15b3:1018"}},
			{Name: "ConnectX-5 Ex", IDs: []string{"15b3:1019"}, VFs: []string{"15b3:101a"}},
			{Name: "ConnectX-6", IDs: []string{"15b3:101b"}, VFs: []string{"15b3:101c"}},
			{Name: "ConnectX-6 Dx", IDs: []string{"15b3:101d"}},
			{Name: "ConnectX-6 Lx", IDs: []string{"15b3:101f"}},
			{Name: "ConnectX-7", IDs: []string{"15b3:1021"}},
			{Name: "ConnectX-8", IDs: []string{"15b3:1023"}},
			{Name: "ConnectX-6 Dx or later", VFs: []string{"15b3:101e"}},
			{Name: "BlueField", IDs: []string{"15b3:a2d2"}, VFs: []string{"15b3:a2d3"}},
			{Name: "BlueField-2", IDs: []string{"15b3:a2d6"}},
			{Name: "BlueField-3", IDs: []string{"15b3:a2dc"}},
		},
		Finds: []string{VF, Switchdev, RDMA, VDPA, VFIO}, Limits: []string{exclusive, bifurcated},
		Tried: []Trial{{How: Written, Host: "mlx5-legacy"}, {How: Written, Host: "mlx5-switchdev"}, {How: Written, Host: "mlx5-vdpa"}, {How: Written, Host: "mlx5-infiniband"}},
	},
	{
		Driver: "ice", VFDriver: "iavf", Vendor: "Intel",
		Products: []Product{
			{Name: "E810", IDs: []string{"8086:1591", "8086:1592", "8086:1593", "8086:1599", "8086:159a", "8086:159b"}},
			{Name: "E822", IDs: []string{"8086:1890", "8086:1891", "8086:1892", "8086:1893", "8086:1894", "8086:1897", "8086:1898", "8086:1899", "8086:189a"}},
			{Name: "E823", IDs: []string{"8086:188a", "8086:188b", "8086:188c", "8086:188d", "8086:188e", "8086:124c", "8086:124d", "8086:124e", "8086:124f", "8086:151d"}},
			{Name: "E825-C", IDs: []string{"8086:579c", "8086:579d", "8086:579e"}},
			{Name: "E830", IDs: []string{"8086:12d1", "8086:12d2", "8086:12d3", "8086:12d4"}},
			{Name: "E800 series", VFs: []string{"8086:1889"}},
		},
		Finds:  []string{VF, Switchdev, RDMA, VFIO},
		Limits: []string{"several ports, on a PF with SFs", exclusive},
	},
	{
		Driver: "iavf", VFDriver: "iavf", Vendor: "Intel",
		Products: []Product{{Name: "adaptive VF, in a VM"}},
		Finds:    []string{VFIO}, Limits: []string{noPF},
		Tried: []Trial{{How: Written, Host: "virtio-vm"}},
	},
	{
		Driver: "i40e", VFDriver: "iavf", Vendor: "Intel",
		Products: []Product{
			{Name: "X710", IDs: []string{"8086:1572", "8086:104e", "8086:104f", "8086:1581", "8086:1585", "8086:1586", "8086:1589", "8086:15ff"}},
			{Name: "XL710", IDs: []string{"8086:1580", "8086:1583", "8086:1584", "8086:1587", "8086:1588"}},
			{Name: "XXV710", IDs: []string{"8086:158a", "8086:158b"}},
			{Name: "700 series", VFs: []string{"8086:154c", "8086:1571"}},
			{Name: "X722", IDs: []string{"8086:37ce", "8086:37cf", "8086:37d0", "8086:37d1", "8086:37d2", "8086:37d3"}, VFs: []string{"8086:37cd"}},
		},
		Finds: []string{VF, RDMA, VFIO}, Limits: []string{"RDMA on X722 only"},
		Tried: []Trial{{How: Written, Host: "i40e"}},
	},
	{
		Driver: "ixgbe", VFDriver: "ixgbevf", Vendor: "Intel",
		Products: []Product{
			{Name: "82599, X520", IDs: []string{"8086:10f8", "8086:10fb", "8086:10fc", "8086:1517", "8086:151c", "8086:154a", "8086:154d", "8086:1557", "8086:1558"}, VFs: []string{"8086:10ed"}},
			{Name: "X540", IDs: []string{"8086:1528", "8086:1560"}, VFs: []string{"8086:1515"}},
			{Name: "X550", IDs: []string{"8086:1563", "8086:15d1"}, VFs: []string{"8086:1565"}},
			{Name: "X552, X553", VFs: []string{"8086:15a8", "8086:15c5"}},
		},
		Finds: []string{VF, VFIO},
	},
	{
		Driver: "igb", VFDriver: "igbvf", Vendor: "Intel",
		Products: []Product{
			{Name: "82576", IDs: []string{"8086:10c9", "8086:10e6", "8086:10e7", "8086:10e8", "8086:150a", "8086:150d", "8086:1518", "8086:1526"}, VFs: []string{"8086:10ca"}},
			{Name: "I350", IDs: []string{"8086:1521", "8086:1522", "8086:1523", "8086:1524"}, VFs: []string{"8086:1520"}},
			{Name: "I210", IDs: []string{"8086:1533", "8086:1536", "8086:1537", "8086:1538", "8086:157b", "8086:157c"}},
		},
		Finds: []string{VF, VFIO}, Limits: []string{"no VFs of I210"},
		Tried: []Trial{{How: Emulated}, {How: Captured, Host: "igb-sriov"}, {How: Captured, Host: "rxe-rdma"}},
	},
	{
		Driver: "idpf", VFDriver: "idpf", Vendor: "Intel",
		Products: []Product{{Name: "IPU E2000", IDs: []string{"8086:1452"}, VFs: []string{"8086:145c"}}},
		Finds:    []string{VF, RDMA, VFIO}, Limits: []string{severalPorts, exclusive, since618},
	},
	{
		Driver: "bnxt_en", VFDriver: "bnxt_en", Vendor: "Broadcom",
		Products: []Product{
			{Name: "BCM57412", IDs: []string{"14e4:16d6"}},
			{Name: "BCM57414", IDs: []string{"14e4:16d7"}},
			{Name: "BCM57416", IDs: []string{"14e4:16d8", "14e4:16e3"}},
			{Name: "BCM57417", IDs: []string{"14e4:16d9", "14e4:16e2"}},
			{Name: "BCM57454", IDs: []string{"14e4:1614"}},
			{Name: "BCM57502", IDs: []string{"14e4:1752"}},
			{Name: "BCM57504", IDs: []string{"14e4:1751"}},
			{Name: "BCM57508", IDs: []string{"14e4:1750"}},
			{Name: "BCM574xx", VFs: []string{"14e4:16dc", "14e4:16d3", "14e4:1609"}},
			{Name: "BCM575xx", VFs: []string{"14e4:1806", "14e4:1808"}},
		},
		Finds: []string{VF, Switchdev, RDMA, VFIO}, Limits: []string{exclusive},
		Tried: []Trial{{How: Written, Host: "vmd"}},
	},
	{
		Driver: "qede", VFDriver: "qede", Vendor: "Marvell (QLogic)",
		Products: []Product{
			{Name: "FastLinQ QL41000", IDs: []string{"1077:8070"}, VFs: []string{"1077:8090"}},
			{Name: "FastLinQ QL45000", IDs: []string{"1077:1634", "1077:1644", "1077:1654", "1077:1656"}, VFs: []string{"1077:1664"}},
		},
		Finds: []string{VF, RDMA, VFIO}, Limits: []string{exclusive},
	},
	{
		Driver: "cxgb4", VFDriver: "cxgb4vf", Vendor: "Chelsio",
		Products: []Product{
			{Name: "T520", IDs: []string{"1425:5401"}, VFs: []string{"1425:5801"}},
			{Name: "T580", IDs: []string{"1425:540d"}, VFs: []string{"1425:580d"}},
			{Name: "T6225", IDs: []string{"1425:6401"}, VFs: []string{"1425:6801"}},
			{Name: "T62100", IDs: []string{"1425:6407", "1425:640d"}, VFs: []string{"1425:6807", "1425:680d"}},
		},
		Finds: []string{VF, RDMA, VFIO}, Limits: []string{severalPorts, exclusive},
	},
	{
		Driver: "sfc", VFDriver: "sfc", Vendor: "AMD (Solarflare)",
		Products: []Product{
			{Name: "SFC9220", IDs: []string{"1924:0a03"}, VFs: []string{"1924:1a03"}},
			{Name: "XtremeScale SFC9250", IDs: []string{"1924:0b03"}, VFs: []string{"1924:1b03"}},
		},
		Finds: []string{VF, VFIO},
	},
	{
		Driver: "sfc_ef100", VFDriver: "sfc_ef100", Vendor: "AMD (Solarflare)",
		Products: []Product{{Name: "EF100 (Alveo SN1000, U25N)", IDs: []string{"10ee:0100"}, VFs: []string{"10ee:1100"}}},
		Finds:    []string{VF, Switchdev, VFIO},
	},
	{
		Driver: "nfp", VFDriver: "nfp_netvf", Vendor: "Corigine (Netronome)",
		Products: []Product{
			{Name: "NFP-4000", IDs: []string{"19ee:4000"}, VFs: []string{"19ee:6003"}},
			{Name: "NFP-5000", IDs: []string{"19ee:5000"}},
			{Name: "NFP-6000", IDs: []string{"19ee:6000"}},
			{Name: "NFP-3800", IDs: []string{"19ee:3800", "1da8:3800"}, VFs: []string{"19ee:3803", "1da8:3803"}},
		},
		Finds: []string{VF, Switchdev, VFIO}, Limits: []string{severalPorts},
	},
	{
		Driver: "ionic", VFDriver: "ionic", Vendor: "AMD Pensando",
		Products: []Product{{Name: "DSC", IDs: []string{"1dd8:1002"}, VFs: []string{"1dd8:1003"}}},
		Finds:    []string{VF, RDMA, VFIO}, Limits: []string{exclusive, since618},
	},
	{
		Driver: "pds_core", VFDriver: "pds_core", Vendor: "AMD Pensando",
		Products: []Product{{Name: "DSC, vDPA", IDs: []string{"1dd8:100c"}, VFs: []string{"1dd8:100b"}}},
		Finds:    []string{VF, VDPA}, Limits: []string{"deviceID may be pds_core.vDPA.N"},
		Tried: []Trial{{How: Written, Host: "pds-vdpa"}},
	},
	{
		Driver: "rvu_nicpf", VFDriver: "rvu_nicvf", Vendor: "Marvell",
		Products: []Product{{Name: "OCTEON TX2, OCTEON 10", IDs: []string{"177d:a063"}, VFs: []string{"177d:a064", "177d:a0f8"}}},
		Finds:    []string{VF, VFIO}, Limits: []string{"no representor-device: the eswitch is another function"},
	},
	{
		Driver: "hns3", VFDriver: "hns3", Vendor: "Huawei (HiSilicon)",
		Products: []Product{
			{Name: "Kunpeng 920", IDs: []string{"19e5:a220", "19e5:a221", "19e5:a222", "19e5:a224", "19e5:a226"}, VFs: []string{"19e5:a22e", "19e5:a22f"}},
		},
		Finds: []string{VF, RDMA, VFIO}, Limits: []string{exclusive},
	},
	{
		Driver: "hinic", VFDriver: "hinic", Vendor: "Huawei",
		Products: []Product{{Name: "Hi1822", IDs: []string{"19e5:0200", "19e5:0205", "19e5:0206", "19e5:0210", "19e5:1822"}, VFs: []string{"19e5:375e", "19e5:379e"}}},
		Finds:    []string{VF, VFIO},
	},
	{
		Driver: "enic", VFDriver: "enic", Vendor: "Cisco",
		Products: []Product{{Name: "VIC", IDs: []string{"1137:0043", "1137:0044"}, VFs: []string{"1137:0071"}}},
		Finds:    []string{VF, VFIO},
	},
	{
		Driver: "cxi_core", VFDriver: "cxi_core", Vendor: "HPE (Cray)",
		Products: []Product{{Name: "Slingshot (Cassini)", IDs: []string{"17db:0501", "1590:0371"}}},
		Limits:   []string{"driver not in the kernel; no /dev/cxiN for pods"},
	},
	{
		Driver: "ena", Vendor: "Amazon",
		Products: []Product{{Name: "ENA", IDs: []string{"1d0f:ec20"}}},
		Limits:   []string{noPF},
	},
	{
		Driver: "efa", Vendor: "Amazon",
		Products: []Product{{Name: "EFA", IDs: []string{"1d0f:efa0", "1d0f:efa1", "1d0f:efa2"}}},
		Finds:    []string{RDMA}, Limits: []string{noInterface},
	},
	{
		Driver: "gve", Vendor: "Google",
		Products: []Product{{Name: "gVNIC", IDs: []string{"1ae0:0042"}}},
		Limits:   []string{noPF},
	},
	{
		Driver: "mana", Vendor: "Microsoft",
		Products: []Product{{Name: "Azure MANA", IDs: []string{"1414:00ba"}}},
		Finds:    []string{RDMA}, Limits: []string{severalPorts},
	},
	{
		Driver: "hv_netvsc", Vendor: "Microsoft",
		Products: []Product{{Name: "Hyper-V netvsc"}},
		Limits:   []string{"nothing: its VF may come and go"},
	},
	{
		Driver: "virtio-pci", VFDriver: "virtio-pci", Vendor: "Red Hat",
		Products: []Product{{Name: "virtio-net", IDs: []string{"1af4:1000", "1af4:1041"}}},
		Finds:    []string{VF, VDPA, VFIO},
		Tried: []Trial{
			{How: Emulated}, {How: Captured, Host: "vdpa-vf"}, {How: Captured, Host: "vdpa-vf-virtio"}, {How: Captured, Host: "igb-sriov"}, {How: Written, Host: "virtio-vm"},
		},
	},
	{
		Driver: "erdma", Vendor: "Alibaba",
		Products: []Product{{Name: "Elastic RDMA", IDs: []string{"1ded:107f", "1ded:5007"}}},
		Finds:    []string{RDMA}, Limits: []string{apart},
		Tried: []Trial{{How: Written, Host: "erdma"}},
	},
}
