package scheduler_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/inventory"
)

const (
	nodes = 50
	pfs   = 8
	vfs   = 128 // of each PF
)

// manyPFs is what a node offers that has eight PFs with 128 VFs each.
func manyPFs(t *testing.T) []inventory.Slice {
	t.Helper()
	host, err := inventory.Captured(hosttxttest.ManyVFs(pfs * vfs))
	must(t, err)
	devices, _, err := inventory.Read(host)
	must(t, err)
	for n := range devices { // the VFs are dealt out to eight PFs
		if d := &devices[n]; d.Kind == inventory.VF {
			index := *d.Attributes[inventory.AttrVFIndex].IntValue
			number, name, address := index%vfs, pfName(int(index/vfs)), fmt.Sprintf("0000:%02x:00.0", 0x3b+index/vfs)
			d.Attributes[inventory.AttrVFIndex] = resourceapi.DeviceAttribute{IntValue: &number}
			d.Attributes[inventory.AttrPFName] = resourceapi.DeviceAttribute{StringValue: &name}
			d.Attributes[inventory.AttrPFPCIBusID] = resourceapi.DeviceAttribute{StringValue: &address}
		}
	}
	return slices(t, devices, "devices:\n- select: device.attributes['devinfo-cni.io'].kind == 'vf'\n  as: exclusive\n", inventory.Situation{Driver: driver})
}

func pfName(n int) string { return fmt.Sprintf("ens%df0np0", n) }

// A class that one PF's VFs meet costs the scheduler at most three times what one costs that
// all meet, for all of 50 nodes, while VFs are free and when half of them are given away.
func TestAClassOfOnePFCostsTheSchedulerLittle(t *testing.T) {
	list := manyPFs(t)
	var published []*resourceapi.ResourceSlice
	for n := range nodes {
		published = append(published, resourceSlices(list, fmt.Sprint("node", n))...)
	}
	cache := cel.NewCache(10, cel.Features{})
	cost := func(class string, given int64) time.Duration {
		state := allocated()
		for _, s := range published {
			for _, d := range s.Spec.Devices {
				if *d.Attributes[inventory.AttrVFIndex].IntValue < given {
					state.AllocatedDevices.Insert(deviceID(s.Spec.Pool.Name, d.Name))
				}
			}
		}
		best := time.Hour
		for range 5 {
			start := processorTime()
			allocator := allocator(t, state, classOf(class), published, cache)
			for n := range nodes {
				results, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", n)}}, []*resourceapi.ResourceClaim{claim("true")})
				if err != nil || len(results) != 1 {
					t.Fatalf("%s: %d results, %v", class, len(results), err)
				}
			}
			best = min(best, processorTime()-start)
		}
		return best
	}
	for _, given := range []int64{0, vfs / 2} {
		all := cost(fmt.Sprintf("device.driver == %q", driver), given)
		for n := range pfs {
			one := cost(fmt.Sprintf("device.driver == %q && device.attributes['devinfo-cni.io'].pfName == %q", driver, pfName(n)), given)
			t.Logf("%d VFs of each PF are given away: %s: %v; any PF: %v", given, pfName(n), one, all)
			if one > 3*all {
				t.Errorf("%d VFs of each PF are given away: one of %s takes %v, one of any PF %v", given, pfName(n), one, all)
			}
		}
	}
}

// processorTime is what this process has taken: what else runs here does not count.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
