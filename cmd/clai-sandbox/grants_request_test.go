package main

import (
	"context"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants/client"
)

// An agent takes back the request that a person has seen, and asks until another begins alike: the
// words that a person types must name the one that they saw. No broker is asked for less.
func TestTheBeginningOfARequestsIDHasToBeLong(t *testing.T) {
	for _, typed := range []string{"r", "r4", "r4brwtt", "\x1b[2J"} {
		_, err := requestNamed(context.Background(), &client.Client{Socket: "/nonexistent"}, typed)
		if err == nil || !strings.Contains(err.Error(), "too short") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %v", typed, err)
		}
	}
	if _, err := requestNamed(context.Background(), &client.Client{Socket: "/nonexistent"}, "r4brwtt6"); err == nil || strings.Contains(err.Error(), "too short") {
		t.Error(err)
	}
}
