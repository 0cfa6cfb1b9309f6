// check DIR : reads what `helm template` wrote from standard input, and decodes each document into
// the type that Kubernetes has for it. An unknown field, or one of another type, is an error.
// The program's configuration, out of its ConfigMap, is written to DIR.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail("standard input", err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var what meta.TypeMeta
		if err := yaml.Unmarshal(document, &what); err != nil {
			fail("a document", err)
		}
		kind := what.APIVersion + " " + what.Kind
		into := map[string]any{
			"apps/v1 Deployment":                     &apps.Deployment{},
			"v1 Service":                             &core.Service{},
			"v1 ConfigMap":                           &core.ConfigMap{},
			"v1 Secret":                              &core.Secret{},
			"policy/v1 PodDisruptionBudget":          &policy.PodDisruptionBudget{},
			"autoscaling/v2 HorizontalPodAutoscaler": &autoscaling.HorizontalPodAutoscaler{},
			"networking.k8s.io/v1 NetworkPolicy":     &networking.NetworkPolicy{},
			"monitoring.coreos.com/v1 PodMonitor":    &monitoring.PodMonitor{},
		}[kind]
		if into == nil {
			fail(kind, fmt.Errorf("the chart has no object of this kind"))
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			fail(kind, err)
		}
		if settings, is := into.(*core.ConfigMap); is {
			for name, text := range settings.Data {
				if err := os.WriteFile(filepath.Join(os.Args[1], name), []byte(text), 0o600); err != nil {
					fail(name, err)
				}
			}
		}
		fmt.Println("ok      " + kind)
	}
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "FAILED  %s: %v\n", what, err)
	os.Exit(1)
}
