{{- /* One agent runs on a node, so a cluster has one release, and names of objects do not contain the release's name. */ -}}
{{- define "devinfo.fullname" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "devinfo" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "devinfo.agent" -}}
{{- printf "%s-agent" (include "devinfo.fullname" .) -}}
{{- end -}}

{{- define "devinfo.dra" -}}
{{- $name := include "devinfo.fullname" . -}}
{{- ternary "cni-dra-driver" (printf "%s-cni-dra-driver" $name) (eq $name "devinfo") -}}
{{- end -}}

{{- define "devinfo.agent.account" -}}
{{- .Values.agent.serviceAccount.name | default (ternary (include "devinfo.agent" .) "default" .Values.agent.serviceAccount.create) -}}
{{- end -}}

{{- define "devinfo.dra.account" -}}
{{- .Values.dra.serviceAccount.name | default (ternary (include "devinfo.dra" .) "default" .Values.dra.serviceAccount.create) -}}
{{- end -}}

{{- /* Takes a dict of root and program. kubectl devinfo and PodMonitors select pods by the program's name. */ -}}
{{- define "devinfo.labels" -}}
app.kubernetes.io/name: {{ .program }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: devinfo
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Takes a dict of root, program and own, the value image of that program. */ -}}
{{- define "devinfo.image" -}}
{{- $repository := .own.repository -}}
{{- if not $repository -}}
  {{- if not .root.Values.image.registry -}}
    {{- fail "image.registry is not set, and there is no public image: run \"make push REGISTRY=registry.example.com/net TAG=v0.1.0\", then give --set image.registry=registry.example.com/net,image.tag=v0.1.0; if you load the images on the nodes, the registry is cluster.local" -}}
  {{- end -}}
  {{- $repository = printf "%s/%s" .root.Values.image.registry .program -}}
{{- end -}}
{{- $tag := .own.tag | default .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- if kindIs "float64" $tag -}}{{- $tag = int64 $tag -}}{{- end -}}
{{- ternary (printf "%s@%s" $repository .own.digest) (printf "%s:%v" $repository $tag) (not (empty .own.digest)) -}}
{{- end -}}

{{- /* Fields that the pods of both programs have. Takes a dict of root and own, the program's values. */ -}}
{{- define "devinfo.pod" -}}
{{- with .own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .own.tolerations }}
tolerations: # nodes that have no network yet may need the plugin to get one
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector:
  {{- merge (dict "kubernetes.io/os" "linux") (.own.nodeSelector | default dict) | toYaml | nindent 2 }}
{{- with .own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The flags that the DaemonSets set, by program, with the value that sets each flag; "" = none does. */ -}}
{{- define "devinfo.flags" -}}
{{- dict
  "agent" (dict
    "--cni-bin-dir" "cniBinDir"
    "--settings-dir" "agent.settings"
    "--metrics-address" "agent.port"
    "--device-root" ""
    "--inject" "agent.inject"
    "--uninstall" "agent.uninstall"
    "--keep-running" "agent.uninstall"
    "--missing-info" "agent.missingInfo"
    "--inject-namespaces" "agent.namespaces"
    "--inject-exclude-namespaces" "agent.excludeNamespaces")
  "dra" (dict
    "--host-root" ""
    "--enable-device-metadata" ""
    "--metrics-address" "dra.port"
    "--cni-bin-dir" "cniBinDir"
    "--devices" "dra.devices"
    "--uninstall" "dra.uninstall"
    "--keep-running" "dra.uninstall"
    "--kubelet-plugins-dir" "kubeletRootDir"
    "--kubelet-registrar-dir" "kubeletRootDir"
    "--pod-resources-socket" "kubeletRootDir"
    "--numa-node" "dra.numaNode"
    "--allow-claim-config" "dra.allowClaimConfig")
  | toJson -}}
{{- end -}}

{{- /* extraArgs, which must not contain the flags above. Takes a dict of name and own, the program's values. */ -}}
{{- define "devinfo.extraArgs" -}}
{{- $flags := get (include "devinfo.flags" . | fromJson) .name -}}
{{- range $arg := .own.extraArgs -}}
  {{- $flag := splitList "=" $arg | first -}}
  {{- if hasKey $flags $flag -}}
    {{- fail (printf "%s.extraArgs: %s: %s" $.name $arg (get $flags $flag | empty | ternary "remove it, because the chart sets it" (printf "set %s instead, because probe, mounts or ports depend on it" (get $flags $flag)))) -}}
  {{- end }}
- {{ $arg | quote }}
{{- end -}}
{{- end -}}

{{- /* The directories that the nodes' settings name: a dict of path and key of the setting. It leaves out
directories that are always mounted, or below such a directory. */ -}}
{{- define "devinfo.directories" -}}
{{- $mounted := list "/var/lib/cni/devinfo" "/var/run/k8s.cni.cncf.io/devinfo" "/var/run/cdi" "/var/run/vhost-user" "/var/lib/cni/usrspcni" -}}
{{- $more := dict -}}
{{- range $settings := .Values.agent.settings -}}
  {{- range $key := list "socketDirs" "stateDir" "deviceInfoDir" "devicePluginDir" "cdiDir" -}}
    {{- $value := get $settings $key | default list -}}
    {{- range $path := kindIs "slice" $value | ternary $value (list $value) -}}
      {{- $path = clean $path -}}
      {{- $is := false -}}
      {{- range $mounted -}}
        {{- if hasPrefix (printf "%s/" .) (printf "%s/" $path) -}}{{- $is = true -}}{{- end -}}
      {{- end -}}
      {{- if not $is -}}{{- $_ := set $more $path $key -}}{{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $more | toJson -}}
{{- end -}}
