package deploy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// A directory that the settings name and that is not mounted would be empty to the agent: its
// journal has no attachments, which lets every plugin be replaced, and be removed.
func TestTheDirectoriesThatTheSettingsNameAreMounted(t *testing.T) {
	const settings = `{
		default.json: {stateDir: /srv/journal, deviceInfoDir: /srv/info/, cdiDir: /var/run/cdi/more, socketDirs: [/srv/sockets, /var/run/vhost-user], logLevel: info},
		node1.json: {stateDir: /srv/journal, devicePluginDir: /srv/dp, cdiDir: /run/cdi, cdiDevices: ["*"]}}`
	made := template(t, "devinfo", `{agent: {settings: `+settings+`}, dra: {enabled: true}}`)
	for _, test := range []struct {
		set       string
		container func(corev1.PodSpec) corev1.Container
		want      map[string]bool // whether it may be written to
	}{
		{"devinfo-agent", first, map[string]bool{"/srv/journal": true, "/srv/info": true, "/srv/dp": true, "/run/cdi": true, "/srv/sockets": false}},
		{"cni-dra-driver", first, map[string]bool{"/srv/info": true, "/srv/dp": true, "/run/cdi": true, "/srv/sockets": true}},
		{"cni-dra-driver", firstInit, map[string]bool{"/srv/journal": false}},
	} {
		pod := daemonSet(t, made["DaemonSet "+test.set]).Spec.Template.Spec
		host, got := map[string]string{}, map[string]bool{}
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				host[v.Name] = v.HostPath.Path
			}
		}
		for _, m := range test.container(pod).VolumeMounts {
			if strings.HasPrefix(m.Name, "settings-") {
				got[m.MountPath] = !m.ReadOnly
				if host[m.Name] != m.MountPath {
					t.Errorf("%s: %s of the host is at %s", test.set, host[m.Name], m.MountPath)
				}
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.set, diff)
		}
	}
}

func first(pod corev1.PodSpec) corev1.Container     { return pod.Containers[0] }
func firstInit(pod corev1.PodSpec) corev1.Container { return pod.InitContainers[0] }

// Else the agent could make what is not mounted, and take that for the node's.
func TestNoContainerCanMakeAStateDirectoryOfItsOwn(t *testing.T) {
	for name, pod := range pods(t) {
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			s := c.SecurityContext
			if (s.Privileged == nil || !*s.Privileged) && (s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem) {
				t.Errorf("%s: container %s may write to its root file system", name, c.Name)
			}
		}
	}
}
