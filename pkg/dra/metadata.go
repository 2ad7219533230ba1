package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/store"
)

// metadataFiles are the files of device metadata: for each request of a claim a file for the containers, and a CDI spec
// that mounts it. kubeletplugin writes the specs only once, in Prepare, but the directory of CDI specs may be cleared
// at any time, so metadataFiles restores them.
type metadataFiles struct {
	driver, cdiDir string
	root           string                // directory of the files for the containers
	onRecord       func(uid string) bool // [claim.Engine.IsOnRecord]
	enabled        bool                  // false: claims that were prepared with metadata keep it, and others get none
	mu             sync.Mutex
	specs          map[string][]byte // CDI specs by path; nil = an earlier process wrote it, and it has still to be read

	took         prometheus.Histogram
	writes       prometheus.Counter
	writeErrors  *prometheus.CounterVec // by errorType, like updateErrors
	updateErrors *prometheus.CounterVec
}

// newMetadataFiles reads the CDI specs that an earlier process wrote, and registers the metrics that KEP-5304 names.
func newMetadataFiles(agent *Agent, o KubeletOptions) *metadataFiles {
	of := agent.Options
	in := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"driver": of.Driver}, of.Metrics))
	m := &metadataFiles{
		driver: of.Driver, cdiDir: of.CDIDir, root: filepath.Join(o.PluginDir, "dra-device-metadata"), onRecord: agent.IsOnRecord, enabled: o.Metadata,
		specs: map[string][]byte{},
	}
	in.NewGauge(prometheus.GaugeOpts{Name: "dra_metadata_feature_enabled", Help: "1 if claims get device metadata, else 0."}).Set(map[bool]float64{true: 1}[m.enabled])
	in.NewGaugeFunc(prometheus.GaugeOpts{Name: "dra_metadata_files_active", Help: "Metadata files on the node."}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(len(m.specs))
	})
	m.took = in.NewHistogram(prometheus.HistogramOpts{
		Name: "dra_metadata_write_duration_seconds", Help: "Duration of writes of metadata files.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}, // KEP-5304 wants 99 % below 10 ms
	})
	m.writes = in.NewCounter(prometheus.CounterOpts{Name: "dra_metadata_writes_total", Help: "Successful writes of metadata files."})
	failures := func(name, help string) *prometheus.CounterVec {
		vec := in.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"error_type"})
		for name := range errorTypes {
			vec.WithLabelValues(name) // zero is shown too
		}
		return vec
	}
	m.writeErrors = failures("dra_metadata_write_errors_total", "Failed writes of metadata files, by error_type.")
	m.updateErrors = failures("dra_metadata_update_errors_total", "Failed updates of metadata after an ADD, by error_type.")
	_ = m.load() // tidy reads again what cannot be read now, and reports it
	return m
}

// load reads the CDI specs that earlier processes wrote and that have not been read yet. mu must be held.
func (m *metadataFiles) load() error {
	dir := store.Open(m.cdiDir)
	entries, err := dir.Entries(m.driver)
	for _, e := range entries {
		path := filepath.Join(m.cdiDir, e.Name())
		if is, _ := filepath.Match(m.driver+"_metadata_*.json", e.Name()); is && m.specs[path] == nil {
			data, failed := dir.Read(e.Name())
			m.specs[path], err = data, errors.Join(err, store.UnlessGone(failed)) // somebody may replace it just now
		}
	}
	return err
}

// errorTypes are the values of the label error_type. "other" is that of all other errors.
var errorTypes = map[string][]error{
	"no_space": {syscall.ENOSPC, syscall.EDQUOT}, "permission": {fs.ErrPermission, syscall.EROFS}, "missing": {fs.ErrNotExist}, "other": nil,
}

func errorType(err error) string {
	for name, errs := range errorTypes {
		if slices.ContainsFunc(errs, func(of error) bool { return errors.Is(err, of) }) {
			return name
		}
	}
	return "other"
}

// has reports whether a claim was prepared with metadata, from the name of the CDI device of a request.
func (m *metadataFiles) has(device string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	path := filepath.Join(m.cdiDir, m.driver+"_metadata_"+device+".json") // see kubeletplugin
	if _, has := m.specs[path]; has {
		return true, nil
	}
	_, err := os.Lstat(path) // somebody may have mounted the directory since
	return err == nil, store.UnlessGone(err)
}

// write replaces a file without syncing it, because kubeletplugin writes each file twice. After a power failure
// the kubelet prepares all claims again, so lost files are rewritten.
func (m *metadataFiles) write(path string, data []byte, _ os.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	isSpec := filepath.Dir(path) == filepath.Clean(m.cdiDir)
	if !m.enabled {
		file := path
		if isSpec {
			file = mounted(data)
		}
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			delete(m.specs, path)
			return store.UnlessGone(os.Remove(path)) // a spec without its file
		} else if err != nil {
			return counted(m.writeErrors, err)
		}
	}
	began, dir := time.Now(), store.Open(filepath.Dir(path))
	if !isSpec {
		former, err := dir.Read(filepath.Base(path))
		if err == nil {
			data, err = metadata.NextGeneration(former, data)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return counted(m.writeErrors, err)
		}
	}
	err := counted(m.writeErrors, dir.Write(filepath.Base(path), data))
	switch {
	case err != nil:
	case isSpec:
		m.specs[path] = data
	default:
		m.took.Observe(time.Since(began).Seconds())
		m.writes.Inc()
	}
	return err
}

// mounted returns the metadata file that a CDI spec of kubeletplugin mounts.
func mounted(data []byte) (path string) {
	var spec specs.Spec
	if json.Unmarshal(data, &spec) == nil && len(spec.Devices) > 0 && len(spec.Devices[0].ContainerEdits.Mounts) > 0 {
		path = spec.Devices[0].ContainerEdits.Mounts[0].HostPath
	}
	return path
}

// counted counts an error, unless it is nil, and returns it.
func counted(failures *prometheus.CounterVec, err error) error {
	if err != nil {
		failures.WithLabelValues(errorType(err)).Inc()
	}
	return err
}

// remove removes a file of a claim that ends, and stops keeping it.
func (m *metadataFiles) remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.specs, path)
	return os.Remove(path)
}

// tidy removes the files of claims that ended while no driver ran to unprepare them, and rewrites missing specs of the
// others. Claims that ended have no record, which a claim has before its first file.
func (m *metadataFiles) tidy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	files, err := uidsOfMetadata(m.root)
	err = errors.Join(err, m.load())
	for file, uid := range files {
		if !m.onRecord(uid) {
			request := filepath.Dir(file)
			err = errors.Join(err, os.RemoveAll(request))
			_ = os.Remove(filepath.Dir(request)) // fails if it has another request
		}
	}
	dir := store.Open(m.cdiDir)
	for path, data := range m.specs {
		name := filepath.Base(path)
		uid, _, _ := strings.Cut(strings.TrimPrefix(name, m.driver+"_metadata_"), "_")
		_, failed := os.Lstat(path)
		switch absent := errors.Is(failed, fs.ErrNotExist); {
		case !m.onRecord(uid):
			if failed = dir.Remove(name); failed == nil {
				delete(m.specs, path)
			}
		case absent && data != nil:
			failed = dir.Write(name, data)
		}
		err = errors.Join(err, store.UnlessGone(failed))
	}
	return err
}

// uidsOfMetadata returns the UIDs of claims by metadata file, which is NAMESPACE_NAME/REQUEST/metadata.json below root. Files
// that are damaged, or written just now, are left out.
func uidsOfMetadata(root string) (map[string]string, error) {
	uids := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || e.Name() != "metadata.json":
			return err
		}
		text, err := store.Open(filepath.Dir(path)).Read(e.Name())
		if of, damaged := metadata.Decode(text); err == nil && damaged == nil {
			uids[path] = string(of.UID)
		}
		return err
	})
	return uids, err
}

// UpdateRequestMetadata implements [claim.Metadata]. It waits until the plugin has started. A claim that was prepared
// without metadata has no file to update.
func (k *Kubelet) UpdateRequestMetadata(ctx context.Context, namespace, claim string, uid types.UID, request string, devices []kubeletplugin.Device) error {
	<-k.started
	has, err := k.metadata.has(string(uid) + "_" + resourceclaim.BaseRequestRef(request))
	if !has {
		return err
	}
	return counted(k.metadata.updateErrors, k.helper.UpdateRequestMetadata(ctx, namespace, claim, uid, request, devices))
}

// settleMetadata removes the CDI devices of metadata that was not written, because metadata is off. It returns an error if a
// request of a prepared claim lacks the CDI device of its metadata, which is that of its first device.
func (k *Kubelet) settleMetadata(uid string, claim *drapb.NodePrepareResourceResponse) error {
	isMetadata := func(id string) bool { return strings.HasPrefix(id, k.agent.Options.Driver+"/metadata=") }
	settled := map[string]bool{} // by request
	for _, device := range claim.Devices {
		request := device.RequestNames[0] // the only one, without a subrequest
		if settled[request] {
			continue
		}
		settled[request] = true
		has, unknown := k.metadata.has(uid + "_" + request)
		switch {
		case unknown == nil && !has && !k.options.Metadata:
			device.CdiDeviceIds = slices.DeleteFunc(device.CdiDeviceIds, isMetadata)
		case unknown != nil || !slices.ContainsFunc(device.CdiDeviceIds, isMetadata):
			return fmt.Errorf("cannot write the device metadata; free disk space in %s and %s, and the kubelet prepares the claim again", k.metadata.root, k.metadata.cdiDir)
		}
	}
	return nil
}
