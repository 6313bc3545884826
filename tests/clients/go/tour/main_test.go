package main

import (
	"os"
	"strings"
	"testing"
)

func TestTour(t *testing.T) {
	var out strings.Builder
	if err := tour(t.Context(), os.Getenv("TROUPE_PROJECT"), &out); err != nil {
		t.Fatal(err)
	}
	for _, expected := range []string{"explorer", "refused: ", "thread_closed", "session_closed"} {
		if !strings.Contains(out.String(), expected) {
			t.Errorf("%q is missing in:\n%s", expected, &out)
		}
	}
}
