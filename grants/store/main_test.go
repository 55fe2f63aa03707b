package store

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// The test binary is also the processes that the tests kill, or give a small disk.
func TestMain(m *testing.M) {
	switch role := os.Getenv("STORE_TEST_ROLE"); role {
	case "":
		os.Exit(m.Run())
	case "writer":
		writeUntilKilled(os.Getenv("STORE_TEST_DIR"))
	case "small disk":
		exitWith(onSmallDisk(os.Getenv("STORE_TEST_DIR")))
	case "read-only disk":
		exitWith(onReadOnlyDisk(os.Getenv("STORE_TEST_DIR")))
	case "taking":
		exitWith(onDiskThatIsFilled(os.Getenv("STORE_TEST_DIR")))
	case "owing":
		signal.Ignore(syscall.SIGXFSZ)
		exitWith(onDiskThatRefuses(os.Getenv("STORE_TEST_DIR")))
	default:
		panic(role)
	}
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
