package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// get does what kubectl get does with these arguments: it has the API server make tables of
// pods, page by page, and then prints them.
func get(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "pod" && args[0] != "pods" {
		return errors.New("it gets pods alone")
	}
	flags := flag.NewFlagSet("get", flag.ContinueOnError)
	all, namespace, fields := flags.Bool("A", false, ""), flags.String("n", "default", ""), flags.String("field-selector", "", "")
	name := ""
	if args = args[1:]; len(args) > 0 && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *all {
		*namespace = ""
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var tables []*metav1.Table
	for next := ""; len(tables) == 0 || next != ""; next = tables[len(tables)-1].Continue {
		request := client.CoreV1().RESTClient().Get().NamespaceIfScoped(*namespace, !*all).Resource("pods").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if name != "" {
			request = request.Name(name)
		} else {
			request = request.Param("limit", "500").Param("continue", next).Param("fieldSelector", *fields)
		}
		text, err := request.DoRaw(ctx)
		if err != nil {
			return err
		}
		table := &metav1.Table{}
		if err := json.Unmarshal(text, table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	w := printers.GetNewTabWriter(os.Stdout)
	printer := printers.NewTablePrinter(printers.PrintOptions{WithNamespace: *all})
	for _, table := range tables {
		if err := printer.PrintObj(table, w); err != nil {
			return err
		}
	}
	return w.Flush()
}
