package changes

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// applyVariable makes the test binary a process that applies the one layer of a state directory,
// and may be killed.
const applyVariable = "CLAI_SANDBOX_TEST_APPLY"

func TestMain(m *testing.M) {
	if state := os.Getenv(applyVariable); state != "" {
		list, err := List(state)
		if err != nil || len(list) != 1 {
			fmt.Fprintln(os.Stderr, list, err)
			os.Exit(1)
		}
		fmt.Println("begins")
		result, err := list[0].Apply(context.WithValue(context.Background(), hooksKey{}, hooks{noSync: true}), Selection{})
		if err != nil || len(result.Skipped) > 0 {
			fmt.Fprintln(os.Stderr, result, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
