package dra_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra/custody/custodytest"
)

// The test binary is also the CNI plugin that the tests run, and the agent that they kill.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CNI_COMMAND") != "":
		plugin()
	case os.Getenv(agentEnv) != "":
		doomedAgent()
	default:
		check(os.Setenv("GORACE", "atexit_sleep_ms=0")) // a plugin with the race detector would end a second late
		os.Exit(m.Run())
	}
}

// pluginConf is the configuration of the plugin "fake".
type pluginConf struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	Dir           string          `json:"dir"` // where it keeps its books
	Behave        string          `json:"behave"`
	DeviceID      string          `json:"deviceID"`
	Driver        string          `json:"wants"` // that the device must have; "" = any
	PrevResult    json.RawMessage `json:"prevResult"`
	RuntimeConfig struct{ CNIDeviceInfoFile string }
}

// call is one line of the plugin's books.
type call struct {
	Command, Sandbox, IfName, Netns, Args string
	HasResult                             bool // it was given a prevResult
}

// plugin does as its configuration says. What it has made is a file in dir/there.
func plugin() {
	input, err := io.ReadAll(os.Stdin)
	check(err)
	var conf pluginConf
	check(json.Unmarshal(input, &conf))
	c := call{os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"), os.Getenv("CNI_ARGS"), conf.PrevResult != nil}
	line, _ := json.Marshal(c)
	books, err := os.OpenFile(filepath.Join(conf.Dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	_, err = books.Write(append(line, '\n'))
	check(err)
	made := filepath.Join(conf.Dir, "there", c.Sandbox+"_"+c.IfName)
	if c.Command == "DEL" {
		if _, err := os.Stat(filepath.Join(conf.Dir, "no-del")); err == nil {
			fail("DEL is refused")
		}
		if err := os.Remove(made); err != nil && !os.IsNotExist(err) {
			fail(err.Error())
		}
		check(conf.leave(custodytest.Open(conf.Dir), c.Netns, c.IfName))
		return
	}
	if conf.Behave == "slow" { // until it is told, for 5 minutes at most
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(conf.Dir, "go-on")); err == nil {
				break
			}
		}
	}
	check(os.MkdirAll(filepath.Dir(made), 0o755))
	check(os.WriteFile(made, nil, 0o644))
	check(conf.take(custodytest.Open(conf.Dir), c.Netns, c.IfName))
	misbehave(conf)
	fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": "host0"}, {"name": %q, "mac": "02:00:00:00:00:01", "sandbox": %q}],
		"ips": [{"address": "10.0.0.2/24", "interface": 1}], "dns": {}}`, conf.CNIVersion, c.IfName, c.Netns)
}

// misbehave is what goes wrong after the interface is there.
func misbehave(conf pluginConf) {
	info := conf.RuntimeConfig.CNIDeviceInfoFile
	switch conf.Behave {
	case "die":
		os.Exit(7)
	case "garbage":
		fmt.Println("no JSON")
		os.Exit(0)
	case "flood":
		fmt.Print(strings.Repeat("x", 11<<20))
		os.Exit(0)
	case "refuse":
		fail("no address left")
	case "info":
		check(os.MkdirAll(filepath.Dir(info), 0o755))
		check(os.WriteFile(info, []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.2"}}`), 0o644))
	case "corrupt info":
		check(os.MkdirAll(filepath.Dir(info), 0o755))
		check(os.WriteFile(info, []byte(`{"type":`), 0o644))
	}
}

func fail(why string) {
	fmt.Printf(`{"cniVersion":"1.1.0","code":100,"msg":%q}`, why)
	os.Exit(1)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
