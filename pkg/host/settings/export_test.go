package settings

var EthtoolRequest = ethtoolRequest
