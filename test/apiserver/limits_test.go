package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/status"
)

func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.0.%d/8", i))
	}
	return list
}

// The API server encodes the data again and measures the result. If one field is too long, it refuses the whole
// status.
func TestServerAcceptsLargestStatus(t *testing.T) {
	p := server(t)
	agent := p.agent(t)
	c := p.claim(t, "fits", ours("net", one))
	for name, result := range map[string]string{
		"10 KiB":     `{"cniVersion":"1.0.0","a":"` + strings.Repeat("x", 10240-29) + `"}`,
		"escapes":    `{"cniVersion":"1.0.0","a":"` + strings.Repeat("<", 1700) + `"}`,
		"more":       `{"cniVersion":"1.0.0","a":"` + strings.Repeat("&\u2028\u00e9", 700) + `"}`,
		"numbers":    `{"cniVersion":"1.0.0","a":[1e3,0.10,12345678901234567890,-0]}`,
		"routes":     `{"cniVersion":"1.0.0","routes":[` + strings.TrimSuffix(strings.Repeat(`{"dst":"10.0.0.0/8"},`, 1000), ",") + `]}`,
		"an IP list": `{"cniVersion":"1.0.0","ips":[{"address":"` + strings.Join(append([]string{"::ffff:10.0.0.1/104", "FD00::1/64"}, addresses(20)...), `"},{"address":"`) + `"}]}`,
		"128 bytes":  `{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/a","mac":"` + strings.Repeat("m", 128) + `"}]}`,
	} {
		network, _, err := metadata.NetworkData(json.RawMessage(result), "net1", "/a")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := deviceOf(one).Attached(json.RawMessage(result), network)
		if s.Data == nil {
			t.Errorf("%s: there is no data", name)
		}
		if err := status.Apply(t.Context(), agent, report(c, s)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
