// Package deploy checks what the gateway is deployed with: the Helm chart, the compose
// file, the Dockerfile and the unit of systemd. It is a module of its own, so that no
// other build knows Helm, Kubernetes and Docker.
package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	root  = "../.."
	chart = root + "/deploy/helm/tollhouse"
)

// image is what every installation has to say.
const image = "image: {repository: registry.example/tollhouse}\n"

// database is a configuration that several processes can serve.
const database = `
secrets: [tollhouse]
config:
  store: postgres://tollhouse:${DATABASE_PASSWORD}@database/tollhouse
  billing: prepaid
  channels:
    - {name: main, driver: openai, keys: [{env: OPENAI_API_KEY}], models: {my-chat: gpt-5-mini}}
  prices:
    my-chat: {input: "0.25", output: "2.00"}
`

func TestTheChartMakesWhatAClusterTakes(t *testing.T) {
	t.Parallel()
	tollhouse := build(t)
	for _, tt := range []struct {
		name, values string
		kinds        []string // besides those that there always are
	}{
		{"the defaults", image, nil},
		{"several pods on Postgres", image + database + "replicas: 3\npodDisruptionBudget: {enabled: true}\n", []string{"PodDisruptionBudget"}},
		{"a volume", image + "persistence: {enabled: true, storageClass: fast}\n", []string{"PersistentVolumeClaim"}},
		{"a volume that exists", image + "persistence: {enabled: true, existingClaim: mine}\n", nil},
		{"a name outside", image + "ingress: {enabled: true, className: nginx, host: api.example.com, tlsSecret: tls}\n", []string{"Ingress"}},
		{"metrics", image + database + "metrics: {enabled: true, allowFrom: [{namespaceSelector: {}}], serviceMonitor: {enabled: true, labels: {release: prometheus}}}\n",
			[]string{"Service", "NetworkPolicy", "ServiceMonitor"}},
		{"everything else", image + `
env: {HTTPS_PROXY: "http://proxy:3128"}
podLabels: {team: platform}
podAnnotations: {checksum: "1"}
nodeSelector: {disk: ssd}
tolerations: [{key: gpu, operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: high
image: {repository: r, tag: "1", pullSecrets: [regcred]}
`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := parse(t, tt.values)
			for _, m := range lint.RunAll(chart, values, "apps").Messages {
				if m.Severity > support.InfoSev {
					t.Error(m)
				}
			}
			rendered, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			objects := decode(t, rendered)
			want := append([]string{"ConfigMap", "Deployment", "Service"}, tt.kinds...)
			if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, slices.Compact(slices.Sorted(slices.Values(want)))) {
				t.Errorf("the chart makes %v, want %v", got, want)
			}
			checkPod(t, objects["Deployment"][0].(*apps.Deployment))
			checkConfig(t, tollhouse, objects["ConfigMap"][0].(*core.ConfigMap))
			for _, o := range objects["NetworkPolicy"] {
				if rules := o.(*network.NetworkPolicy).Spec.Ingress; len(rules) != 2 || len(rules[0].From) != 0 || len(rules[1].From) != 1 {
					t.Errorf("the policy lets everybody to the API and the peers of allowFrom to the admin address; it has %+v", rules)
				}
			}
		})
	}
}

func TestTheChartRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, values, want string }{
		{"no image", "{}", "image.repository is empty"},
		{"several pods without a database", image + "replicas: 2", "processes that share accounts share a database"},
		{"several pods on SQLite", image + "replicas: 2\nconfig: {store: 'sqlite:/data/a.db'}", "use Postgres"},
		{"several pods on one volume", image + database + "replicas: 2\npersistence: {enabled: true}", "one volume of one pod"},
		{"an address of its own", image + "config: {listen: '0.0.0.0:1'}", "config.listen is set by the chart"},
		{"a name outside without a name", image + "ingress: {enabled: true}", "ingress.host is empty"},
		{"a value that does not exist", image + "replica: 2", "replica"},
		{"a wrong type", image + "replicas: two", "replicas"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := render(t, parse(t, tt.values)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one with %q", err, tt.want)
			}
		})
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := loader.LoadValues(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// render does what `helm template` does.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, common.ReleaseOptions{Name: "blue", Namespace: "apps", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// decode reads the objects by Kubernetes' own types; an unknown field is an error. The
// kinds of others, such as ServiceMonitor, have no type here.
func decode(t *testing.T, rendered map[string]string) map[string][]runtime.Object {
	t.Helper()
	objects := make(map[string][]runtime.Object)
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, text := range rendered {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(name, err)
			}
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(document, &meta); err != nil {
				t.Fatal(name, err)
			}
			object, _, err := strict.Decode(document, nil, nil)
			if err != nil && !runtime.IsNotRegisteredError(err) {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			objects[meta.Kind] = append(objects[meta.Kind], object)
		}
	}
	return objects
}

// checkPod compares with what the cluster's strictest standard ("restricted") wants, and
// with what a drain needs.
func checkPod(t *testing.T, d *apps.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if s := pod.SecurityContext; !*s.RunAsNonRoot || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod runs as %+v", s)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("the container runs as %+v", s)
	}
	if *pod.TerminationGracePeriodSeconds < 30+c.Lifecycle.PreStop.Sleep.Seconds+2 {
		t.Errorf("a pod is killed after %d s, before its drain has ended", *pod.TerminationGracePeriodSeconds)
	}
	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes ask for something else than docs/guides/operations.md says")
	}
	for label, value := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[label] != value {
			t.Errorf("the selector's label %s is not the pod's", label)
		}
	}
}

// checkConfig has the gateway read the file that the pods get.
func checkConfig(t *testing.T, tollhouse string, m *core.ConfigMap) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tollhouse.yaml")
	if err := os.WriteFile(file, []byte(m.Data["tollhouse.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, tollhouse, file)
}

// check runs `tollhouse check` with the variables that the configurations name.
func check(t *testing.T, tollhouse, file string) {
	t.Helper()
	c := exec.Command(tollhouse, "check", "--config", file)
	c.Env = append(os.Environ(), "OPENAI_API_KEY=k", "DATABASE_PASSWORD=p", "POSTGRES_PASSWORD=p")
	if said, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// build makes the gateway of this repository.
func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tollhouse")
	c := exec.Command("go", "build", "-o", file, "./cmd/tollhouse")
	c.Dir, c.Env = root, append(os.Environ(), "GOWORK=off")
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return file
}
