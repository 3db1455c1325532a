// Command kstatus says what Flux, Argo CD and other users of kstatus make of objects.
//
// It reads JSON objects from its input, one after the other, and prints a line for each: the status, a tab and the
// message, by the rules of sigs.k8s.io/cli-utils.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := judge(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	for {
		var text json.RawMessage
		if err := decoder.Decode(&text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// NB: unstructured's own decoding makes int64 of whole numbers; kstatus finds no other observedGeneration.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		verdict, err := status.Compute(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%s\n", verdict.Status, verdict.Message)
	}
}
